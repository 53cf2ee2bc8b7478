// GEMM: C = alpha * op(A) op(B) + beta * C, row-major, and what a layer does to C right after it.
//
// Shapes: op(A): [m, k], op(B): [k, n], C: [m, n]. A is stored [m, k] with leading dimension
// a_stride, or, when transposed, [k, m]; B likewise [k, n] or [n, k]. Strides are in elements and
// at least the row length. m, n or k may be 0. A and B must not overlap C; data need no more than
// their natural alignment; nothing outside C[m, n] is written.
//
// Types (In of A and B, Out of C): f32, f64, bf16 to bf16, bf16 to f32. bf16 is multiplied exactly
// and summed in f32; a bf16 C is rounded once, at the end. double is the reference mode: its vector
// version is fast in the product, plain in the epilogue.
//
// beta == 0 never reads C. NaN and infinity in A, B and, for beta != 0, in C propagate, also
// through alpha == 0. Cost: 2 m n k flops. Error: |c - exact| <= (k + 2) u (|alpha| |A||B| + |beta
// C|) per element to first order, u the unit roundoff of the sums: k roundings of the sum, one of
// alpha, one of beta (Higham 2002, section 3.1). Processors with a bf16 dot product may flush
// denormal numbers.
//
// Every element is computed by the same operations in the same order wherever it lies in C and
// whatever the thread count: same version, same bits. Versions differ from each other in rounding.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/scratch.h"
#include "kernels/threads.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

enum class Form : std::uint8_t { kPlain, kTransposed };

struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Form a_form = Form::kPlain;
  Form b_form = Form::kPlain;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
};

template <typename T>
void gemm(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c,
          Threads threads = {});

// f(z), and f'(x) times z for backward. gelu is the tanh form of gelu.h, silu(z) = z / (1 +
// exp(-z)).
enum class Activation : std::uint8_t { kNone, kGelu, kSilu, kGeluGradient, kSiluGradient };

// A matrix [m, n] beside C; none when data is null.
template <typename T>
struct Beside {
  T* data = nullptr;
  std::int64_t stride = 0;
};

// What happens to a finished element while it is in the cache, in this order:
//   z = alpha op(A) op(B) + beta C + bias;  pre = z
//   y = z, gelu(z) or silu(z); with a gradient y = z f'(input), gated = z f(input)
//   y *= factor;  y += residual;  C = y
// SwiGLU forward: kSilu with factor = the up branch, pre keeping the gate. Backward, from
// z = d_output: kSiluGradient with input = gate, factor = up gives C = d_gate and gated = d_up.
// The matrices must not overlap each other or A and B; residual may be C's old value through beta.
template <typename T>
struct Epilogue {
  const T* bias = nullptr;  // [n]
  Activation activation = Activation::kNone;
  Beside<T> pre{};
  Beside<const T> input{};  // with a gradient, and only then
  Beside<T> gated{};        // kSiluGradient only: z * silu(input)
  Beside<const T> factor{};
  Beside<const T> residual{};
};

// op(B) in the order in which the kernels read it, to be used for several products: a weight over
// the microbatches of a step. The values are those of B when it was packed.
template <typename T>
class PackedB {
 public:
  // b stored as `shape` says (n, k, b_form, b_stride). Bytes: size_bytes(), about those of B; bf16
  // takes four bytes an element on processors without its dot product.
  PackedB(const GemmShape& shape, const T* b, Threads threads = {});
  [[nodiscard]] std::int64_t n() const { return n_; }
  [[nodiscard]] std::int64_t k() const { return k_; }
  [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const void* data() const { return data_.get(); }

 private:
  std::int64_t n_;
  std::int64_t k_;
  std::int64_t size_bytes_;
  Scratch<std::byte> data_;
};

// One product in full. packed, when set, stands for b, b_form and b_stride.
template <typename In, typename Out = In>
struct GemmCall {
  GemmShape shape;
  Wide<In> alpha = 1;
  const In* a = nullptr;
  const In* b = nullptr;
  const PackedB<In>* packed = nullptr;
  Wide<In> beta = 0;
  Out* c = nullptr;
  Epilogue<Out> epilogue{};
};

// In and Out: float, double, bf16 with themselves, bf16 with float.
template <typename In, typename Out>
void gemm(const GemmCall<In, Out>& call, Threads threads = {});

// `count` products of one shape, product i at a + i * a_step and so on; shared out whole among the
// threads. For many small ones: nothing is allocated or woken per product.
struct BatchSteps {
  std::int64_t a = 0;
  std::int64_t b = 0;
  std::int64_t c = 0;
};
template <typename T>
void gemm_batch(const GemmShape& shape, std::int64_t count, const BatchSteps& steps, Wide<T> alpha,
                const T* a, const T* b, Wide<T> beta, T* c, Threads threads = {});

// A part of a packed B: columns [first, first + n) of `columns`.
struct PackedColumns {
  const void* data = nullptr;
  std::int64_t columns = 0;
  std::int64_t first = 0;
};

// What one version provides; see registry.h. Runs on the calling thread.
template <typename T>
struct GemmFunctions {
  static constexpr std::string_view kOperation = "gemm";
  using Element = T;
  // Columns of C computed together: C is best cut, and a packed B may only be cut, at multiples.
  std::int64_t column_unit = 1;
  // call.packed is ignored; `packed` stands for B when its data is not null.
  void (*run)(const GemmCall<T, T>& call, const PackedColumns& packed) = nullptr;
  void (*run_wide)(const GemmCall<T, Wide<T>>& call, const PackedColumns& packed) = nullptr;
  std::int64_t (*packed_bytes)(std::int64_t n, std::int64_t k) = nullptr;
  // Packs columns [first, first + count) of op(B); first is a multiple of column_unit.
  void (*pack)(const GemmShape& shape, const T* b, std::int64_t first, std::int64_t count,
               void* packed) = nullptr;
};

template <typename T>
[[nodiscard]] const GemmFunctions<T>& gemm_plain();
// Null where this build has no kernels for `isa`. T is float or bf16.
template <typename T>
[[nodiscard]] const GemmFunctions<T>* gemm_fast(Isa isa);
[[nodiscard]] const GemmFunctions<double>* gemm_f64_simd(Isa isa);

}  // namespace sinew::kernels
