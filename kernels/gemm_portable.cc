// GEMM inner kernels in plain C++: four floats side by side, which every compiler maps to SSE or
// NEON registers. 4 x 8: 8 sums, 2 vectors of B, a broadcast of A and a product fill 12 of the 16
// registers. The product is rounded before the sum: there is no fused multiply-add to count on.
#include <algorithm>

#include "kernels/gemm_tile.h"
#include "kernels/gemm_tile_inl.h"

namespace sinew::kernels {
namespace {

struct Portable {
  static constexpr int kLanes = 4;
  struct Vector {
    float lane[kLanes];
  };
  static Vector zero() { return {}; }
  static Vector load(const float* x) { return {{x[0], x[1], x[2], x[3]}}; }
  static void store(float* x, Vector v) { std::copy_n(v.lane, kLanes, x); }
  static Vector load_partial(const float* x, int count) {
    Vector v{};
    std::copy_n(x, count, v.lane);
    return v;
  }
  static void store_partial(float* x, Vector v, int count) { std::copy_n(v.lane, count, x); }
  static Vector broadcast(const float* x) { return {{*x, *x, *x, *x}}; }
  static Vector multiply(Vector x, Vector y) {
    for (int i = 0; i < kLanes; ++i) x.lane[i] *= y.lane[i];
    return x;
  }
  static Vector multiply_add(Vector x, Vector y, Vector z) {
    for (int i = 0; i < kLanes; ++i) z.lane[i] += x.lane[i] * y.lane[i];
    return z;
  }
  static void transpose(Vector (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i)
      for (int j = i + 1; j < kLanes; ++j) std::swap(r[i].lane[j], r[j].lane[i]);
  }
};

}  // namespace

const GemmKernels* gemm_kernels_portable() {
  static constexpr GemmKernels kKernels = make_gemm_kernels<Portable, 4, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels
