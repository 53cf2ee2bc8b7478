// What files that call NVIDIA's libraries need of the runtime seam. Compiled by nvcc only.
#pragma once

#include <cuda_runtime.h>

#include "kernels/device/runtime.h"

namespace sinew::device {

[[nodiscard]] cudaStream_t native_stream(Stream& stream);

}  // namespace sinew::device
