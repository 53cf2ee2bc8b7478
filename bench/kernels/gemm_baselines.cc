#include "bench/kernels/gemm_baselines.h"

#include <dlfcn.h>

namespace sinew::bench {
namespace {

using kernels::Form;
using kernels::GemmShape;

// The library's symbols stay its own (RTLD_LOCAL, RTLD_DEEPBIND): OpenBLAS and BLIS both export
// cblas_sgemm. Never unloaded: their threads may outlive a handle.
void* open_library(const char* file) { return dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND); }

template <typename Function>
Function find(void* library, const char* symbol) {
  return reinterpret_cast<Function>(dlsym(library, symbol));
}

class Cblas : public GemmBaseline {
 public:
  using Gemm = void (*)(int order, int a_form, int b_form, int m, int n, int k, float alpha,
                        const float* a, int a_stride, const float* b, int b_stride, float beta,
                        float* c, int c_stride);
  Cblas(std::string name, Gemm gemm) : name_(std::move(name)), gemm_(gemm) {}
  [[nodiscard]] std::string name() const override { return name_; }
  void run(const GemmShape& s, const float* a, const float* b, float* c) override {
    constexpr int kRowMajor = 101;
    const auto form = [](Form f) { return f == Form::kPlain ? 111 : 112; };
    gemm_(kRowMajor, form(s.a_form), form(s.b_form), static_cast<int>(s.m), static_cast<int>(s.n),
          static_cast<int>(s.k), 1, a, static_cast<int>(s.a_stride), b,
          static_cast<int>(s.b_stride), 0, c, static_cast<int>(s.c_stride));
  }

 private:
  std::string name_;
  Gemm gemm_;
};

class Dnnl : public GemmBaseline {
 public:
  using Gemm = int (*)(char a_form, char b_form, std::int64_t m, std::int64_t n, std::int64_t k,
                       float alpha, const float* a, std::int64_t a_stride, const float* b,
                       std::int64_t b_stride, float beta, float* c, std::int64_t c_stride);
  explicit Dnnl(Gemm gemm) : gemm_(gemm) {}
  [[nodiscard]] std::string name() const override { return "onednn"; }
  void run(const GemmShape& s, const float* a, const float* b, float* c) override {
    const auto form = [](Form f) { return f == Form::kPlain ? 'N' : 'T'; };
    gemm_(form(s.a_form), form(s.b_form), s.m, s.n, s.k, 1, a, s.a_stride, b, s.b_stride, 0, c,
          s.c_stride);
  }

 private:
  Gemm gemm_;
};

}  // namespace

std::vector<std::unique_ptr<GemmBaseline>> find_gemm_baselines(int threads) {
  std::vector<std::unique_ptr<GemmBaseline>> found;
  if (void* library = open_library("libopenblas.so.0")) {
    if (auto set = find<void (*)(int)>(library, "openblas_set_num_threads")) set(threads);
    if (auto gemm = find<Cblas::Gemm>(library, "cblas_sgemm"))
      found.push_back(std::make_unique<Cblas>("openblas", gemm));
  }
  if (void* library = open_library("libblis.so.4")) {
    if (auto set = find<void (*)(std::int64_t)>(library, "bli_thread_set_num_threads"))
      set(threads);
    if (auto gemm = find<Cblas::Gemm>(library, "cblas_sgemm"))
      found.push_back(std::make_unique<Cblas>("blis", gemm));
  }
  if (void* library = open_library("libdnnl.so.2")) {
    if (void* openmp = open_library("libgomp.so.1")) {
      if (auto set = find<void (*)(int)>(openmp, "omp_set_num_threads")) set(threads);
    }
    if (auto gemm = find<Dnnl::Gemm>(library, "dnnl_sgemm"))
      found.push_back(std::make_unique<Dnnl>(gemm));
  }
  return found;
}

}  // namespace sinew::bench
