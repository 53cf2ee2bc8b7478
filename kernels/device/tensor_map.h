// TensorMap: what the copy unit of sm_90 and later knows of a bf16 matrix, so that one instruction
// brings a box of it into shared memory. Made on the host, passed to a kernel by value.
//
// A box of 64 columns lies in shared memory as rows of 128 bytes; within each group of eight rows
// the 16-byte chunks of row r are exchanged by r (the 128-byte swizzle). What lies outside the
// matrix becomes zero.
#pragma once

#include <cstdint>

#include "sched/base/dtype.h"

namespace sinew::device {

struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

constexpr int kBoxColumns = 64;

struct MatrixBox {
  const bf16* data = nullptr;  // a multiple of 16 bytes
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t row_stride = 0;  // elements, a multiple of 8
  std::uint32_t box_rows = 0;    // at most 256
};

// Throws device::Error when the driver refuses the matrix.
[[nodiscard]] TensorMap make_tensor_map(const MatrixBox& box);

}  // namespace sinew::device
