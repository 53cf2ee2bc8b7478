#include "bench/kernels/gemm_baselines.h"

#include <dlfcn.h>

#include <utility>

#include "sched/base/check.h"

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
  template <typename T>
  using Gemm = void (*)(int order, int a_form, int b_form, int m, int n, int k, float alpha,
                        const T* a, int a_stride, const T* b, int b_stride, float beta, float* c,
                        int c_stride);
  Cblas(std::string name, void* library)
      : name_(std::move(name)),
        gemm_(find<Gemm<float>>(library, "cblas_sgemm")),
        bf16_gemm_(find<Gemm<bf16>>(library, "cblas_sbgemm")) {}
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] bool is_complete() const { return gemm_ != nullptr; }
  [[nodiscard]] bool has_bf16() const override { return bf16_gemm_ != nullptr; }
  void run(const GemmShape& s, const float* a, const float* b, float* c) override {
    call(gemm_, s, a, b, c);
  }
  void run(const GemmShape& s, const bf16* a, const bf16* b, float* c) override {
    call(bf16_gemm_, s, a, b, c);
  }

 private:
  template <typename T>
  static void call(Gemm<T> gemm, const GemmShape& s, const T* a, const T* b, float* c) {
    constexpr int kRowMajor = 101;
    const auto form = [](Form f) { return f == Form::kPlain ? 111 : 112; };
    gemm(kRowMajor, form(s.a_form), form(s.b_form), static_cast<int>(s.m), static_cast<int>(s.n),
         static_cast<int>(s.k), 1, a, static_cast<int>(s.a_stride), b, static_cast<int>(s.b_stride),
         0, c, static_cast<int>(s.c_stride));
  }

  std::string name_;
  Gemm<float> gemm_;
  Gemm<bf16> bf16_gemm_;
};

class Dnnl : public GemmBaseline {
 public:
  template <typename T>
  using Gemm = int (*)(char a_form, char b_form, std::int64_t m, std::int64_t n, std::int64_t k,
                       float alpha, const T* a, std::int64_t a_stride, const T* b,
                       std::int64_t b_stride, float beta, float* c, std::int64_t c_stride);
  explicit Dnnl(void* library)
      : gemm_(find<Gemm<float>>(library, "dnnl_sgemm")),
        bf16_gemm_(find<Gemm<bf16>>(library, "dnnl_gemm_bf16bf16f32")) {
    // Every build has the function; without AVX-512 it refuses every call.
    const bf16 one{};
    float c;
    if (bf16_gemm_ != nullptr && bf16_gemm_('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &c, 1) != 0)
      bf16_gemm_ = nullptr;
  }
  [[nodiscard]] std::string name() const override { return "onednn"; }
  [[nodiscard]] bool is_complete() const { return gemm_ != nullptr; }
  [[nodiscard]] bool has_bf16() const override { return bf16_gemm_ != nullptr; }
  void run(const GemmShape& s, const float* a, const float* b, float* c) override {
    call(gemm_, s, a, b, c);
  }
  void run(const GemmShape& s, const bf16* a, const bf16* b, float* c) override {
    call(bf16_gemm_, s, a, b, c);
  }

 private:
  template <typename T>
  static void call(Gemm<T> gemm, const GemmShape& s, const T* a, const T* b, float* c) {
    const auto form = [](Form f) { return f == Form::kPlain ? 'N' : 'T'; };
    const int status = gemm(form(s.a_form), form(s.b_form), s.m, s.n, s.k, 1, a, s.a_stride, b,
                            s.b_stride, 0, c, s.c_stride);
    CHECK_EQ(status, 0);
  }

  Gemm<float> gemm_;
  Gemm<bf16> bf16_gemm_;
};

template <typename Baseline, typename... Arguments>
void add_if_complete(std::vector<std::unique_ptr<GemmBaseline>>& found, Arguments&&... arguments) {
  auto baseline = std::make_unique<Baseline>(std::forward<Arguments>(arguments)...);
  if (baseline->is_complete()) found.push_back(std::move(baseline));
}

}  // namespace

std::vector<std::unique_ptr<GemmBaseline>> find_gemm_baselines(int threads) {
  std::vector<std::unique_ptr<GemmBaseline>> found;
  if (void* library = open_library("libopenblas.so.0")) {
    if (auto set = find<void (*)(int)>(library, "openblas_set_num_threads")) set(threads);
    add_if_complete<Cblas>(found, "openblas", library);
  }
  if (void* library = open_library("libblis.so.4")) {
    if (auto set = find<void (*)(std::int64_t)>(library, "bli_thread_set_num_threads"))
      set(threads);
    add_if_complete<Cblas>(found, "blis", library);
  }
  if (void* library = open_library("libdnnl.so.2")) {
    if (void* openmp = open_library("libgomp.so.1")) {
      if (auto set = find<void (*)(int)>(openmp, "omp_set_num_threads")) set(threads);
    }
    add_if_complete<Dnnl>(found, library);
  }
  return found;
}

}  // namespace sinew::bench
