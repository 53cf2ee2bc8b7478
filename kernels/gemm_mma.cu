// GEMM by mma.sync, for every device from sm_80 on: a ring of stages in shared memory filled by
// cp.async, fragments by ldmatrix, 16x8x16 products in registers.
#include "kernels/device/gemm_finish.h"
#include "kernels/device/gemm_order.h"
#include "kernels/device/gemm_tile.h"
#include "kernels/device/gpu.h"
#include "kernels/device/shapes.h"
#include "kernels/gemm_gpu.h"

namespace sinew::kernels {

// A block computes kM x kN of C with kWarpsM x kWarpsN warps, kDepth of the sum at a time.
template <int kM_, int kN_, int kWarpsM_, int kWarpsN_, int kBlocks_>
struct MmaConfig {
  static constexpr int kBlocks = kBlocks_;  // on one multiprocessor
  static constexpr int kM = kM_;
  static constexpr int kN = kN_;
  static constexpr int kDepth = 32;
  static constexpr int kStages = 4;
  static constexpr int kWarpsN = kWarpsN_;
  static constexpr int kThreads = kWarpsM_ * kWarpsN_ * gpu::kWarp;
  static constexpr int kWarpM = kM_ / kWarpsM_;
  static constexpr int kWarpN = kN_ / kWarpsN_;
  static constexpr int kSharedBytes = kStages * (kM + kN) * kDepth * 2;
};
// 64 KiB of shared memory and 64 sums per thread: two blocks on a multiprocessor of 164 KiB and
// 65,536 registers.
using LargeTile = MmaConfig<128, 128, 2, 4, 2>;
using SmallTile = MmaConfig<64, 64, 2, 2, 4>;

struct MmaOperands {
  TilePlace a;
  TilePlace b;
  std::int64_t depth_per_split;
  std::int64_t tiles_m;
  std::int64_t tiles_n;
};

// How the operands lie: which of them have the summed dimension contiguous, and whether they can
// travel in chunks of 16 bytes. Any other layout is kNarrow.
enum class Layout : std::uint8_t { kPlainPlain, kPlainTransposed, kTransposedPlain, kNarrow };

template <typename Config>
struct MmaSums {
  gpu::FragmentC tile[Config::kWarpM / 16][Config::kWarpN / 8];
};

template <typename Config, typename TileA, typename TileB>
GPU_FUNCTION void multiply_stage(MmaSums<Config>& sums, const bf16* tile_a, const bf16* tile_b) {
  const int warp_m = gpu::warp() / Config::kWarpsN * Config::kWarpM;
  const int warp_n = gpu::warp() % Config::kWarpsN * Config::kWarpN;
  UNROLL for (int depth = 0; depth < Config::kDepth; depth += 16) {
    gpu::FragmentA a[Config::kWarpM / 16];
    gpu::FragmentA b[Config::kWarpN / 16];
    UNROLL for (int i = 0; i < Config::kWarpM / 16; ++i) {
      a[i] = TileA::load_a(tile_a, warp_m + i * 16, depth);
    }
    UNROLL for (int j = 0; j < Config::kWarpN / 16; ++j) {
      b[j] = TileB::load_b(tile_b, warp_n + j * 16, depth);
    }
    UNROLL for (int i = 0; i < Config::kWarpM / 16; ++i) {
      UNROLL for (int j = 0; j < Config::kWarpN / 8; ++j) {
        gpu::multiply_add(sums.tile[i][j], a[i], gpu::half(b[j / 2], j % 2));
      }
    }
  }
}

template <typename Config, int kOuter, typename TileType, Layout layout>
using FillerOf = std::conditional_t<
    layout == Layout::kNarrow, NarrowFiller<TileType, kOuter, Config::kDepth, Config::kThreads>,
    WideFiller<TileType, kOuter, Config::kDepth, TileType::kContiguous, Config::kThreads>>;

// partial != null: the block's part of the sum goes there, [splits, m, n], and the epilogue is
// another kernel's; else this is the whole sum.
template <typename Config, Layout layout>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    gemm_mma_kernel(const __grid_constant__ MmaOperands operands,
                    const __grid_constant__ GemmOutput out, float* partial) {
  constexpr bool kAContiguous = layout != Layout::kTransposedPlain;
  constexpr bool kBContiguous = layout == Layout::kPlainTransposed || layout == Layout::kNarrow;
  using TileA = Tile<Config::kM, Config::kDepth, kAContiguous>;
  using TileB = Tile<Config::kN, Config::kDepth, kBContiguous>;
  SHARED_DYNAMIC(bf16, stages);
  constexpr int kStageElements = TileA::kElements + TileB::kElements;

  const TileIndex tile = tile_of(blockIdx.x, operands.tiles_m, operands.tiles_n);
  const std::int64_t first_m = tile.m * Config::kM;
  const std::int64_t first_n = tile.n * Config::kN;
  const std::int64_t begin = blockIdx.z * operands.depth_per_split;
  const std::int64_t rest = operands.a.depth - begin;
  const std::int64_t depth = rest < operands.depth_per_split ? rest : operands.depth_per_split;
  const auto steps = static_cast<int>((depth + Config::kDepth - 1) / Config::kDepth);
  FillerOf<Config, Config::kM, TileA, layout> fill_a(operands.a, first_m, begin, begin + depth);
  FillerOf<Config, Config::kN, TileB, layout> fill_b(operands.b, first_n, begin, begin + depth);

  const auto fill = [&](int step) {
    if (step < steps) {
      bf16* stage = stages + step % Config::kStages * kStageElements;
      fill_a.fill(stage);
      fill_b.fill(stage + TileA::kElements);
    }
    gpu::async_copy_commit();  // an empty group keeps the count of groups equal to that of steps
  };

  MmaSums<Config> sums = {};
  for (int step = 0; step < Config::kStages - 1; ++step) fill(step);
  for (int step = 0; step < steps; ++step) {
    REQUIRED(gemm_stage_arrived, gpu::async_copy_wait<Config::kStages - 2>());
    // Everybody's copies have arrived, and everybody is done with the stage that is filled next.
    REQUIRED(gemm_stage_visible, __syncthreads());
    fill(step + Config::kStages - 1);
    const bf16* stage = stages + step % Config::kStages * kStageElements;
    multiply_stage<Config, TileA, TileB>(sums, stage, stage + TileA::kElements);
  }

  const std::int64_t row0 = first_m + gpu::warp() / Config::kWarpsN * Config::kWarpM;
  const std::int64_t col0 = first_n + gpu::warp() % Config::kWarpsN * Config::kWarpN;
  UNROLL for (int i = 0; i < Config::kWarpM / 16; ++i) {
    UNROLL for (int j = 0; j < Config::kWarpN / 8; ++j) {
      UNROLL for (int h = 0; h < 2; ++h) {
        const std::int64_t row = row0 + i * 16 + gpu::lane() / 4 + h * 8;
        const std::int64_t column = col0 + j * 8 + gpu::lane() % 4 * 2;
        const float* v = sums.tile[i][j].v + 2 * h;
        if (partial == nullptr) {
          finish_pair(out, row, column, v[0], v[1]);
        } else if (row < out.m) {
          float* place = partial + (blockIdx.z * out.m + row) * out.n + column;
          if (column < out.n) place[0] = v[0];
          if (column + 1 < out.n) place[1] = v[1];
        }
      }
    }
  }
}

// Adds the parts in order and finishes.
__global__ void __launch_bounds__(kStrideThreads)
    gemm_finish_kernel(const __grid_constant__ GemmOutput out, const float* partial,
                       std::int64_t splits) {
  const std::int64_t pairs = (out.n + 1) / 2;
  for (std::int64_t i = gpu::grid_thread(); i < out.m * pairs; i += gpu::grid_threads()) {
    const std::int64_t row = i / pairs;
    const std::int64_t column = i % pairs * 2;
    const bool both = column + 1 < out.n;
    float sum0 = 0;
    float sum1 = 0;
    for (std::int64_t s = 0; s < splits; ++s) {
      const float* place = partial + (s * out.m + row) * out.n + column;
      sum0 += place[0];
      if (both) sum1 += place[1];
    }
    finish_pair(out, row, column, sum0, sum1);
  }
}

namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

template <typename Config>
std::int64_t tiles(const GemmShape& shape) {
  return divide_up(shape.m, Config::kM) * divide_up(shape.n, Config::kN);
}

// Cuts a long sum when C has too few tiles to fill a device, into parts of no less than 512.
// Depends on the shape only, so that every device adds in the same order.
template <typename Config>
std::int64_t splits_of(const GemmShape& shape) {
  constexpr std::int64_t kBlocksWanted = 256;
  constexpr std::int64_t kDepthLeast = 512;
  const std::int64_t parts_most = std::max<std::int64_t>(1, shape.k / kDepthLeast);
  return std::clamp<std::int64_t>(kBlocksWanted / tiles<Config>(shape), 1, parts_most);
}

Layout layout_of(const DeviceGemm& call) {
  const bool wide = is_aligned16(call.a) && is_aligned16(call.b) && call.shape.a_stride % 8 == 0 &&
                    call.shape.b_stride % 8 == 0;
  const bool a_plain = call.shape.a_form == Form::kPlain;
  const bool b_plain = call.shape.b_form == Form::kPlain;
  // Nothing in training transposes both.
  if (!wide || (!a_plain && !b_plain)) return Layout::kNarrow;
  if (!a_plain) return Layout::kTransposedPlain;
  return b_plain ? Layout::kPlainPlain : Layout::kPlainTransposed;
}

MmaOperands operands_of(const DeviceGemm& call) {
  const GemmShape& s = call.shape;
  const bool a_plain = s.a_form == Form::kPlain;
  const bool b_plain = s.b_form == Form::kPlain;
  MmaOperands operands{};
  operands.a = {call.a, a_plain ? s.a_stride : 1, a_plain ? 1 : s.a_stride, s.m, s.k};
  operands.b = {call.b, b_plain ? 1 : s.b_stride, b_plain ? s.b_stride : 1, s.n, s.k};
  return operands;
}

template <typename Config, Layout layout>
void launch_mma(const DeviceGemm& call, device::Stream& stream) {
  const GemmShape& shape = call.shape;
  const std::int64_t splits = splits_of<Config>(shape);
  MmaOperands operands = operands_of(call);
  // Parts are whole steps, so that only the last one is ragged.
  operands.depth_per_split = divide_up(divide_up(shape.k, splits), Config::kDepth) * Config::kDepth;
  operands.tiles_m = divide_up(shape.m, Config::kM);
  operands.tiles_n = divide_up(shape.n, Config::kN);
  const device::LaunchShape blocks = {
      .grid = {static_cast<unsigned>(tiles<Config>(shape)), 1, static_cast<unsigned>(splits)},
      .block = {Config::kThreads},
      .shared_bytes = Config::kSharedBytes};
  const GemmOutput out = output_of(call);
  device::launch(gemm_mma_kernel<Config, layout>, blocks, stream, operands, out,
                 splits > 1 ? call.workspace : nullptr);
  if (splits > 1) {
    device::launch(gemm_finish_kernel, stride_shape(shape.m * divide_up(shape.n, 2)), stream, out,
                   call.workspace, splits);
  }
}

template <typename Config>
void run_wide(const DeviceGemm& call, device::Stream& stream) {
  if (call.shape.m == 0 || call.shape.n == 0) return;
  switch (layout_of(call)) {
    case Layout::kPlainPlain:
      return launch_mma<Config, Layout::kPlainPlain>(call, stream);
    case Layout::kPlainTransposed:
      return launch_mma<Config, Layout::kPlainTransposed>(call, stream);
    case Layout::kTransposedPlain:
      return launch_mma<Config, Layout::kTransposedPlain>(call, stream);
    case Layout::kNarrow:
      return launch_mma<SmallTile, Layout::kNarrow>(call, stream);
  }
}

bool is_new_enough(const device::Properties& properties) { return properties.major >= 8; }

}  // namespace

const GemmVersion& gemm_mma_small() {
  static constexpr GemmVersion kVersion = {
      "mma_64x64", "compute capability 8.0 or newer",
      [](const DeviceGemm&, const device::Properties& properties) {
        return is_new_enough(properties);
      },
      [](const GemmShape&) { return true; }, run_wide<SmallTile>};
  return kVersion;
}

// Large tiles move less; small ones keep a device of a hundred multiprocessors busy when C is
// small.
const GemmVersion& gemm_mma_large() {
  static constexpr GemmVersion kVersion = {
      "mma_128x128", "compute capability 8.0, rows at multiples of 16 bytes, not both transposed",
      [](const DeviceGemm& call, const device::Properties& properties) {
        return is_new_enough(properties) && layout_of(call) != Layout::kNarrow;
      },
      [](const GemmShape& shape) { return tiles<LargeTile>(shape) >= 64; }, run_wide<LargeTile>};
  return kVersion;
}

std::int64_t gemm_mma_workspace(const GemmShape& shape) {
  if (shape.m == 0 || shape.n == 0) return 0;
  const std::int64_t splits = std::max(splits_of<SmallTile>(shape), splits_of<LargeTile>(shape));
  return splits > 1 ? splits * shape.m * shape.n : 0;
}

}  // namespace sinew::kernels
