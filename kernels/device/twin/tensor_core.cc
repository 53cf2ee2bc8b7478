// Fragment layouts as the PTX manual draws them (Matrix fragments for mma.m16n8k16; ldmatrix). With
// g = lane / 4 and t = lane % 4 a lane holds
//   a: rows g, g + 8, g, g + 8 at columns 2t, 2t, 2t + 8, 2t + 8 and the column after each
//   b: column g, rows 2t, 2t + 1 and 2t + 8, 2t + 9
//   d: row g, columns 2t, 2t + 1; row g + 8, the same columns
#include "kernels/device/twin/tensor_core.h"

#include "kernels/device/twin/tensor_sum.h"

namespace sinew::twin {

namespace {

constexpr int kLanes = 32;

float low(std::uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
float high(std::uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000U); }

void compute_mma(std::uint32_t mask, void* const* arguments) {
  if (mask != ~0U) fail("mma: all 32 lanes of the warp must take part");
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& in = *static_cast<const MmaArgument*>(arguments[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = g + (i % 2) * 8;
      const int column = 2 * t + (i / 2) * 8;
      a[row][column] = low(in.a[i]);
      a[row][column + 1] = high(in.a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[2 * t + i * 8][g] = low(in.b[i]);
      b[2 * t + i * 8 + 1][g] = high(in.b[i]);
    }
  }
  for (int row = 0; row < 16; ++row) {
    TensorSums<8> sums;
    for (int k = 0; k < 16; ++k) sums.add(a[row][k], b[k]);
    for (int column = 0; column < 8; ++column) {
      auto& out = *static_cast<MmaArgument*>(arguments[row % 8 * 4 + column / 2]);
      float& d = out.d[row / 8 * 2 + column % 2];
      d = sums.on(column, d);
    }
  }
}

// Element (row, column) of one of the four matrices that the lanes brought.
std::uint32_t element(void* const* arguments, int matrix, int row, int column) {
  const auto& in = *static_cast<const LoadMatrixArgument*>(arguments[matrix * 8 + row]);
  const std::uint32_t pair = in.row[column / 2];
  return column % 2 == 0 ? pair & 0xffffU : pair >> 16;
}

template <bool kTransposed>
void compute_load(std::uint32_t mask, void* const* arguments) {
  if (mask != ~0U) fail("ldmatrix: all 32 lanes of the warp must take part");
  for (int lane = 0; lane < kLanes; ++lane) {
    auto& out = *static_cast<LoadMatrixArgument*>(arguments[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint32_t pair = 0;
      for (int i = 0; i < 2; ++i) {
        const int row = kTransposed ? 2 * t + i : g;
        const int column = kTransposed ? g : 2 * t + i;
        pair |= element(arguments, matrix, row, column) << (16 * i);
      }
      out.result[matrix] = pair;
    }
  }
}

}  // namespace

constinit const WarpOp kMmaBf16 = {"mma", compute_mma, false};
constinit const WarpOp kLoadMatrix = {"ldmatrix", compute_load<false>, false};
constinit const WarpOp kLoadMatrixTransposed = {"ldmatrix.trans", compute_load<true>, false};

}  // namespace sinew::twin
