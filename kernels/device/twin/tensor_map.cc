#include "kernels/device/tensor_map.h"

#include <cstring>

#include "kernels/device/runtime.h"
#include "kernels/device/twin/box_map.h"

namespace sinew::device {

TensorMap make_tensor_map(const MatrixBox& box) {
  // The driver's rules for cuTensorMapEncodeTiled.
  constexpr std::uint64_t kExtentMax = std::uint64_t{1} << 32;
  constexpr std::uint64_t kStrideBytesEnd = std::uint64_t{1} << 40;
  const bool aligned = reinterpret_cast<std::uintptr_t>(box.data) % 16 == 0;
  if (!aligned || box.row_stride % 8 != 0 || box.row_stride * sizeof(bf16) >= kStrideBytesEnd ||
      box.row_stride < box.columns || box.box_rows == 0 || box.box_rows > 256 || box.rows == 0 ||
      box.columns == 0 || box.rows > kExtentMax || box.columns > kExtentMax) {
    throw Error("device twin: no tensor map for a matrix of " + std::to_string(box.rows) + " x " +
                std::to_string(box.columns) + " with rows of " + std::to_string(box.row_stride));
  }
  const twin::BoxMap map = {twin::BoxMap::kMark,
                            reinterpret_cast<const std::uint16_t*>(box.data),
                            box.rows,
                            box.columns,
                            box.row_stride,
                            box.box_rows};
  TensorMap made{};
  static_assert(sizeof map <= sizeof made);
  std::memcpy(made.bytes, &map, sizeof map);
  return made;
}

}  // namespace sinew::device
