// GEMM by NVIDIA's cuBLASLt: a row of the table of versions, for comparison and by name. Never
// taken by itself.
//
// cuBLASLt counts columns first, so it is asked for C^T = op(B)^T op(A)^T: what is row-major here
// is column-major there, without a copy. Sums in f32; no epilogue. The library's own heuristic
// picks the kernel at every call, which costs the host some microseconds.
#include <cublasLt.h>

#include <string>

#include "kernels/device/native.h"
#include "kernels/device/shapes.h"
#include "kernels/gemm_gpu.h"

namespace sinew::kernels {

namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw device::Error(std::string("cublasLt: ") + what + ": " + cublasLtGetStatusString(status));
}

// One for each thread that computes; the library's own caches live in it.
struct Handle {
  cublasLtHandle_t handle = nullptr;
  Handle() { check(cublasLtCreate(&handle), "creating a handle"); }
  ~Handle() { cublasLtDestroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

struct Description {
  cublasLtMatmulDesc_t value = nullptr;
  Description(cublasOperation_t a, cublasOperation_t b) {
    check(cublasLtMatmulDescCreate(&value, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, b);
  }
  ~Description() { cublasLtMatmulDescDestroy(value); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t operation) {
    check(cublasLtMatmulDescSetAttribute(value, attribute, &operation, sizeof operation),
          "describing a product");
  }
};

// rows, columns and stride as the library counts: a column is contiguous.
struct MatrixLayout {
  cublasLtMatrixLayout_t value = nullptr;
  MatrixLayout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&value, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), stride),
          "describing a matrix");
  }
  ~MatrixLayout() { cublasLtMatrixLayoutDestroy(value); }
  MatrixLayout(const MatrixLayout&) = delete;
  MatrixLayout& operator=(const MatrixLayout&) = delete;
};

struct Preference {
  cublasLtMatmulPreference_t value = nullptr;
  explicit Preference(std::size_t workspace_bytes) {
    check(cublasLtMatmulPreferenceCreate(&value), "stating a preference");
    check(cublasLtMatmulPreferenceSetAttribute(value, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_bytes, sizeof workspace_bytes),
          "stating a preference");
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(value); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
};

cublasOperation_t operation_of(Form form) {
  return form == Form::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T;
}

void run_cublaslt(const DeviceGemm& call, device::Stream& stream) {
  thread_local const Handle library;
  const GemmShape& s = call.shape;
  const bool a_plain = s.a_form == Form::kPlain;
  const bool b_plain = s.b_form == Form::kPlain;
  const cudaDataType_t c_type = call.c_dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
  const Description product(operation_of(s.b_form), operation_of(s.a_form));
  const MatrixLayout b(CUDA_R_16BF, b_plain ? s.n : s.k, b_plain ? s.k : s.n, s.b_stride);
  const MatrixLayout a(CUDA_R_16BF, a_plain ? s.k : s.m, a_plain ? s.m : s.k, s.a_stride);
  const MatrixLayout c(c_type, s.n, s.m, s.c_stride);
  const std::size_t workspace_bytes = static_cast<std::size_t>(gemm_workspace(s)) * sizeof(float);
  const Preference preference(workspace_bytes);
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  check(cublasLtMatmulAlgoGetHeuristic(library.handle, product.value, b.value, a.value, c.value,
                                       c.value, preference.value, 1, &found, &count),
        "choosing a kernel");
  if (count == 0) throw device::Error("cublasLt: it has no kernel for this product");
  check(cublasLtMatmul(library.handle, product.value, &call.alpha, call.b, b.value, call.a, a.value,
                       &call.beta, call.c, c.value, call.c, c.value, &found.algo, call.workspace,
                       workspace_bytes, device::native_stream(stream)),
        "multiplying");
}

bool suits_cublaslt(const DeviceGemm& call, const device::Properties& properties) {
  const GemmShape& s = call.shape;
  const Epilogue<bf16>& e = call.epilogue;
  return properties.major >= 8 && s.m > 0 && s.n > 0 && s.k > 0 && e.bias == nullptr &&
         e.activation == Activation::kNone && e.pre.data == nullptr && e.factor.data == nullptr &&
         e.residual.data == nullptr && is_aligned16(call.a) && is_aligned16(call.b) &&
         is_aligned16(call.c) && s.a_stride % 8 == 0 && s.b_stride % 8 == 0 && s.c_stride % 8 == 0;
}

}  // namespace

const GemmVersion& gemm_cublaslt() {
  static constexpr GemmVersion kVersion = {
      "cublaslt", "NVIDIA's library, no epilogue, rows at multiples of 16 bytes", suits_cublaslt,
      [](const GemmShape&) { return false; }, run_cublaslt};
  return kVersion;
}

}  // namespace sinew::kernels
