// Tensor maps by the driver's encoder, which is looked up at run time so that nothing links it.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>
#include <string>

#include "kernels/device/runtime.h"
#include "kernels/device/tensor_map.h"

namespace sinew::device {

namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSince = 12000;  // CUDA 12.0 brought it
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             kSince, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    throw Error("cuda: the driver has no tensor maps; update the NVIDIA driver to 525 or newer");
  }
  return reinterpret_cast<Encode>(function);
}

}  // namespace

TensorMap make_tensor_map(const MatrixBox& box) {
  static const Encode encode = find_encoder();
  CUtensorMap map;
  const cuuint64_t extents[] = {box.columns, box.rows};
  const cuuint64_t strides[] = {box.row_stride * sizeof(bf16)};
  const cuuint32_t boxes[] = {kBoxColumns, box.box_rows};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(box.data), extents,
             strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error("cuda: the driver refuses a tensor map of " + std::to_string(box.rows) + " x " +
                std::to_string(box.columns) + " (result " + std::to_string(result) + ")");
  }
  TensorMap made;
  static_assert(sizeof map == sizeof made);
  std::memcpy(&made, &map, sizeof map);
  return made;
}

}  // namespace sinew::device
