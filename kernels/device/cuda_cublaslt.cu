// GEMM by NVIDIA's cuBLASLt: a row of the table of versions, for comparison and by name. Never
// taken by itself.
//
// cuBLASLt counts columns first, so it is asked for C^T = op(B)^T op(A)^T: what is row-major here
// is column-major there, without a copy. Sums in f32; no epilogue. The library's own heuristic
// picks the kernel at every call, which costs the host some microseconds.
//
// The library, of half a gigabyte, is loaded when it is first asked about: programs start without
// it, and also where it is not.
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/device/native.h"
#include "kernels/device/shapes.h"
#include "kernels/gemm_gpu.h"
#include "sched/base/library.h"

namespace sinew::kernels {

namespace {

// The library's functions, by its own names.
struct Calls {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusString) status_text = nullptr;
  decltype(&cublasLtMatmulDescCreate) description_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) description_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) description_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  bool complete = false;

  Calls() {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    // The second is the toolkit's usual folder, which the loader may not know.
    complete = take_from(name) || take_from("/usr/local/cuda/lib64/" + name);
  }

 private:
  bool take_from(const std::string& file) {
    Library library(file.c_str());
    library.find("cublasLtCreate", &create);
    library.find("cublasLtDestroy", &destroy);
    library.find("cublasLtGetStatusString", &status_text);
    library.find("cublasLtMatmulDescCreate", &description_create);
    library.find("cublasLtMatmulDescDestroy", &description_destroy);
    library.find("cublasLtMatmulDescSetAttribute", &description_set);
    library.find("cublasLtMatrixLayoutCreate", &layout_create);
    library.find("cublasLtMatrixLayoutDestroy", &layout_destroy);
    library.find("cublasLtMatmulPreferenceCreate", &preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", &preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", &preference_set);
    library.find("cublasLtMatmulAlgoGetHeuristic", &heuristic);
    library.find("cublasLtMatmul", &multiply);
    return library.missing().empty();
  }
};

const Calls& library() {
  static const Calls kCalls;
  return kCalls;
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw device::Error(std::string("cublasLt: ") + what + ": " + library().status_text(status));
}

// What NVIDIA recommends for Hopper; older devices take less.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

// One for each thread that computes; the library's own caches live in it.
struct Handle {
  cublasLtHandle_t handle = nullptr;
  device::Memory workspace{kWorkspaceBytes};
  Handle() { check(library().create(&handle), "creating a handle"); }
  ~Handle() { library().destroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

struct Description {
  cublasLtMatmulDesc_t value = nullptr;
  Description(cublasOperation_t a, cublasOperation_t b) {
    check(library().description_create(&value, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, b);
  }
  ~Description() { library().description_destroy(value); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t operation) {
    check(library().description_set(value, attribute, &operation, sizeof operation),
          "describing a product");
  }
};

// rows, columns and stride as the library counts: a column is contiguous.
struct MatrixLayout {
  cublasLtMatrixLayout_t value = nullptr;
  MatrixLayout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check(library().layout_create(&value, type, static_cast<std::uint64_t>(rows),
                                  static_cast<std::uint64_t>(columns), stride),
          "describing a matrix");
  }
  ~MatrixLayout() { library().layout_destroy(value); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
};

struct Preference {
  cublasLtMatmulPreference_t value = nullptr;
  Preference() {
    check(library().preference_create(&value), "stating a preference");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  }
  ~Preference() { library().preference_destroy(value); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  // The library takes a matrix for one at a multiple of 256 bytes where it is not told.
  void set_alignment(cublasLtMatmulPreferenceAttributes_t attribute, const void* matrix) {
    const auto address = reinterpret_cast<std::uintptr_t>(matrix);
    set(attribute, static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & -address, 256)));
  }

 private:
  template <typename T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T wanted) {
    check(library().preference_set(value, attribute, &wanted, sizeof wanted),
          "stating a preference");
  }
};

cublasOperation_t operation_of(Form form) {
  return form == Form::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T;
}

void run_cublaslt(const DeviceGemm& call, device::Stream& stream) {
  thread_local const Handle own;
  const GemmShape& s = call.shape;
  const bool a_plain = s.a_form == Form::kPlain;
  const bool b_plain = s.b_form == Form::kPlain;
  const cudaDataType_t c_type = call.c_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
  const Description product(operation_of(s.b_form), operation_of(s.a_form));
  const MatrixLayout b(CUDA_R_16BF, b_plain ? s.n : s.k, b_plain ? s.k : s.n, s.b_stride);
  const MatrixLayout a(CUDA_R_16BF, a_plain ? s.k : s.m, a_plain ? s.m : s.k, s.a_stride);
  const MatrixLayout c(c_type, s.n, s.m, s.c_stride);
  Preference preference;
  preference.set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, call.b);
  preference.set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, call.a);
  preference.set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, call.c);
  preference.set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, call.c);
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  check(library().heuristic(own.handle, product.value, b.value, a.value, c.value, c.value,
                            preference.value, 1, &found, &count),
        "choosing a kernel");
  if (count == 0) throw device::Error("cublasLt: it has no kernel for this product");
  check(library().multiply(own.handle, product.value, &call.alpha, call.b, b.value, call.a, a.value,
                           &call.beta, call.c, c.value, call.c, c.value, &found.algo,
                           own.workspace.data(), kWorkspaceBytes, device::native_stream(stream)),
        "multiplying");
}

bool suits_cublaslt(const DeviceGemm& call, const device::Properties& properties) {
  const GemmShape& s = call.shape;
  const Epilogue<bf16>& e = call.epilogue;
  return properties.major >= 8 && s.m > 0 && s.n > 0 && s.k > 0 && e.bias == nullptr &&
         e.activation == Activation::kNone && e.pre.data == nullptr && e.factor.data == nullptr &&
         e.residual.data == nullptr && is_aligned16(call.a) && is_aligned16(call.b) &&
         is_aligned16(call.c) && s.a_stride % 8 == 0 && s.b_stride % 8 == 0 &&
         s.c_stride % 8 == 0 && library().complete;
}

}  // namespace

const GemmVersion& gemm_cublaslt() {
  static constexpr GemmVersion kVersion = {
      "cublaslt",
      "NVIDIA's library (libcublasLt.so on LD_LIBRARY_PATH), no epilogue, rows at multiples of 16 "
      "bytes",
      suits_cublaslt, [](const GemmShape&) { return false; }, run_cublaslt};
  return kVersion;
}

}  // namespace sinew::kernels
