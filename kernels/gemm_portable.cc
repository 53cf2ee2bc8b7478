// GEMM inner kernels in plain C++: vectors of four floats, which every compiler maps to SSE or NEON
// registers. 4 x 8: 8 sums, 2 vectors of B, a broadcast of A and a product fill 12 of the 16
// registers. The product is rounded before the sum: there is no fused multiply-add to count on.
#include <cstring>

#include "kernels/gemm_tile.h"
#include "kernels/gemm_tile_inl.h"

namespace sinew::kernels {
namespace {

struct Portable {
  static constexpr int kLanes = 4;
  using Vector [[gnu::vector_size(16)]] = float;
  static Vector zero() { return Vector{}; }
  static Vector load(const float* x) { return load_partial(x, kLanes); }
  static void store(float* x, Vector v) { store_partial(x, v, kLanes); }
  static Vector load_partial(const float* x, int count) {
    Vector v{};
    std::memcpy(&v, x, static_cast<std::size_t>(count) * sizeof(float));
    return v;
  }
  static void store_partial(float* x, Vector v, int count) {
    std::memcpy(x, &v, static_cast<std::size_t>(count) * sizeof(float));
  }
  static Vector broadcast(const float* x) { return Vector{} + *x; }
  static Vector multiply(Vector x, Vector y) { return x * y; }
  static Vector multiply_add(Vector x, Vector y, Vector z) { return z + x * y; }
  static void transpose(Vector (&r)[kLanes]) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = i + 1; j < kLanes; ++j) {
        const float above = r[i][j];
        r[i][j] = r[j][i];
        r[j][i] = above;
      }
    }
  }
};

}  // namespace

const GemmKernels* gemm_kernels_portable() {
  static constexpr GemmKernels kKernels = make_gemm_kernels<Portable, 4, 2>();
  return &kKernels;
}

}  // namespace sinew::kernels
