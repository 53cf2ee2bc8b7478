// GEMM: C = alpha * op(A) op(B) + beta * C, row-major.
//
// Shapes: op(A): [m, k], op(B): [k, n], C: [m, n]. A is stored [m, k] with leading dimension
// a_stride, or, when transposed, [k, m]; B likewise [k, n] or [n, k]. Strides are in elements and
// at least the row length. m, n or k may be 0. A and B must not overlap C; data need no more than
// their natural alignment; nothing outside C[m, n] is written.
//
// beta == 0 never reads C. NaN and infinity in A, B and, for beta != 0, in C propagate, also
// through alpha == 0. Cost: 2 m n k flops. Error: |c - exact| <= (k + 2) u (|alpha| |A||B| + |beta
// C|) per element to first order, u the unit roundoff: k roundings of the sum, one of alpha, one of
// beta (Higham 2002, section 3.1).
//
// Every element is computed by the same operations in the same order wherever it lies in C and
// whatever the thread count: same version, same bits. Versions differ from each other in rounding.
// T is float or double; double is the reference mode and runs the plain version.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/threads.h"

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

// What one version provides; see registry.h. Runs on the calling thread.
template <typename T>
struct GemmFunctions {
  static constexpr std::string_view kOperation = "gemm";
  using Element = T;
  void (*run)(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c);
};

template <typename T>
[[nodiscard]] const GemmFunctions<T>& gemm_plain();
// Null where this build has no kernels for `isa`.
[[nodiscard]] const GemmFunctions<float>* gemm_blocked_f32(Isa isa);

}  // namespace sinew::kernels
