// Column sums in two steps: parts of the rows into the workspace, then the parts.
#include "kernels/device/column_sums.h"

#include <algorithm>

#include "kernels/device/gpu.h"
#include "kernels/layer_norm.h"

namespace sinew::kernels {

constexpr int kColumnWarps = 8;

// A block sums 32 columns over one part of the rows: warp w takes rows w, w + 8, ... in turn, then
// the warps' sums are added in order.
template <typename T>
__global__ void __launch_bounds__(kColumnWarps* gpu::kWarp)
    column_sums_kernel(Matrix<T> x, std::int64_t rows_per_part, float* target, Write mode) {
  SHARED(float, sums, kColumnWarps* gpu::kWarp);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * gpu::kWarp + gpu::lane();
  const std::int64_t begin = blockIdx.y * rows_per_part;
  const std::int64_t end = begin + rows_per_part < x.rows ? begin + rows_per_part : x.rows;
  float sum = 0;
  if (column < x.channels) {
    for (std::int64_t r = begin + gpu::warp(); r < end; r += kColumnWarps) {
      sum += gpu::widen(x.data[r * x.stride + column]);
    }
  }
  sums[threadIdx.x] = sum;
  REQUIRED(column_sums_written, __syncthreads());
  if (gpu::warp() == 0 && column < x.channels) {
    float total = sums[gpu::lane()];
    for (int w = 1; w < kColumnWarps; ++w) total += sums[w * gpu::kWarp + gpu::lane()];
    float& place = target[blockIdx.y * x.channels + column];
    place = mode == Write::kAccumulate ? place + total : total;
  }
}

namespace {

// Rows of one part: enough that a part is worth a block, few enough that all blocks are busy.
constexpr std::int64_t kRowsPerPart = 128;

template <typename T>
void launch_sums(const Matrix<T>& x, std::int64_t rows_per_part, float* target, Write mode,
                 device::Stream& stream) {
  const auto columns = static_cast<unsigned>((x.channels + gpu::kWarp - 1) / gpu::kWarp);
  const auto parts = static_cast<unsigned>((x.rows + rows_per_part - 1) / rows_per_part);
  device::launch(column_sums_kernel<T>,
                 {.grid = {columns, parts}, .block = {kColumnWarps * gpu::kWarp}}, stream, x,
                 rows_per_part, target, mode);
}

// As few parts as a grid may have in y.
std::int64_t rows_per_part(std::int64_t rows) {
  constexpr std::int64_t kPartsMax = 4096;
  return std::max(kRowsPerPart, (rows + kPartsMax - 1) / kPartsMax);
}

}  // namespace

std::int64_t column_sums_workspace(std::int64_t rows, std::int64_t channels) {
  return (rows + rows_per_part(rows) - 1) / rows_per_part(rows) * channels;
}

template <typename T>
void column_sums(const Matrix<T>& x, float* target, float* workspace, device::Stream& stream) {
  if (x.rows == 0 || x.channels == 0) return;
  const std::int64_t part = rows_per_part(x.rows);
  const std::int64_t parts = (x.rows + part - 1) / part;
  if (parts == 1) return launch_sums(x, part, target, Write::kAccumulate, stream);
  launch_sums(x, part, workspace, Write::kAssign, stream);
  launch_sums(Matrix<float>{workspace, parts, x.channels, x.channels}, parts, target,
              Write::kAccumulate, stream);
}
template void column_sums<float>(const Matrix<float>&, float*, float*, device::Stream&);
template void column_sums<bf16>(const Matrix<bf16>&, float*, float*, device::Stream&);

}  // namespace sinew::kernels
