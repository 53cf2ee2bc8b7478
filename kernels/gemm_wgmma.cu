// GEMM for sm_90a: a copy unit fills a ring of stages in shared memory (box copies by tensor maps,
// barriers that count bytes), two warp groups multiply straight from there (wgmma).
//
// Protocol of a stage: `full` ends a phase when its boxes have arrived; `empty` when all warps of
// both groups have finished the products that read it. One warp fills, the two groups multiply; a
// group keeps one step's products under way while it waits for the next stage, and hands the stage
// before back.
//
// An operand whose summed dimension is contiguous lies in a stage as rows of 64 summands; any other
// as panels of 64 of its rows (columns of B), a line for each summand, 64 of them. The bytes are
// the same, and so is the protocol; the descriptors tell.
//
// Tiles of 128 x 128 leave room for two blocks on a multiprocessor, of which one multiplies while
// the other finishes its sums. Tiles of 128 x 256 read a quarter less of shared memory for each
// product and are for long sums. The filling warp is alone, so that the registers that a whole
// group would be given are the sums'.
//
// Source: PTX manual, wgmma.mma_async; the scheme of CUTLASS's warp-specialised kernels (Thakkar et
// al., 2023).
#include "kernels/device/gemm_finish.h"
#include "kernels/device/gemm_order.h"
#include "kernels/device/gpu.h"
#include "kernels/device/gpu/hopper.h"
#include "kernels/device/gpu/vector.h"
#include "kernels/device/shapes.h"
#include "kernels/gemm_gpu.h"

namespace sinew::kernels {

constexpr int kWgmmaDepth = device::kBoxColumns;
constexpr int kPanel = device::kBoxColumns;  // rows of an operand in one box of summands

// kColumns of C, a ring of kRing stages, kBlocks on a multiprocessor of 227 KiB.
template <int kColumns, int kRing, int kBlocks>
struct WgmmaConfig {
  static constexpr int kM = 128;
  static constexpr int kN = kColumns;
  static constexpr int kStages = kRing;
  static constexpr int kBlocksAtOnce = kBlocks;
  static constexpr int kConsumers = kM / gpu::kProductRows;
  static constexpr int kConsumerThreads = kConsumers * 4 * gpu::kWarp;
  static constexpr int kThreads = kConsumerThreads + gpu::kWarp;
  static constexpr int kBytesA = kM * kWgmmaDepth * 2;
  static constexpr int kBytesB = kN * kWgmmaDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  // Behind the stages, whose start must be a multiple of 1024: nothing lies before them.
  static constexpr int kBarrierBytes = 2 * kStages * static_cast<int>(sizeof(std::uint64_t));
  static constexpr int kSharedBytes = kStages * kStageBytes + kBarrierBytes;
};
using WgmmaTile = WgmmaConfig<128, 3, 2>;
using WideWgmmaTile = WgmmaConfig<256, 4, 1>;

struct WgmmaPlace {
  int steps;
  std::int64_t tiles_m;
  std::int64_t tiles_n;
};

struct StageBarriers {
  std::uint64_t* full;
  std::uint64_t* empty;
};

// kOuter rows (columns of B) from `first` on, of the 64 summands of a step.
template <int kOuter, gpu::Major major>
GPU_FUNCTION void fill_operand(unsigned char* place, const device::TensorMap& map, int first,
                               int step, std::uint64_t* barrier) {
  if constexpr (major == gpu::Major::kDepth) {
    gpu::load_box(place, map, step * kWgmmaDepth, first, barrier);
  } else {
    UNROLL for (int panel = 0; panel < kOuter / kPanel; ++panel) {
      gpu::load_box(place + panel * kPanel * kWgmmaDepth * 2, map, first + panel * kPanel,
                    step * kWgmmaDepth, barrier);
    }
  }
}

// The operand's rows from 64 `panel` on, of the 16 summands from 16 k on.
template <gpu::Major major>
GPU_FUNCTION std::uint64_t operand_at(const unsigned char* place, int panel, int k) {
  constexpr std::uint32_t kPanelBytes = kPanel * kWgmmaDepth * 2;
  constexpr int kStepBytes = gpu::kProductDepth * (major == gpu::Major::kDepth ? 2 : kPanel * 2);
  return gpu::tile_descriptor<major>(place + panel * kPanelBytes + k * kStepBytes, kPanelBytes);
}

// The thread that fills.
template <typename Config, gpu::Major a_major, gpu::Major b_major>
GPU_FUNCTION void fill_stages(const device::TensorMap& a, const device::TensorMap& b,
                              const StageBarriers& barriers, unsigned char* stages, int first_m,
                              int first_n, int steps) {
  for (int step = 0; step < steps; ++step) {
    const int stage = step % Config::kStages;
    if (step >= Config::kStages) {
      const unsigned parity = (step / Config::kStages - 1) % 2;
      REQUIRED(wgmma_stage_is_free, gpu::mbarrier_wait(&barriers.empty[stage], parity));
    }
    REQUIRED(wgmma_bytes_expected,
             gpu::mbarrier_arrive_expect(&barriers.full[stage], Config::kStageBytes));
    unsigned char* place = stages + stage * Config::kStageBytes;
    fill_operand<Config::kM, a_major>(place, a, first_m, step, &barriers.full[stage]);
    fill_operand<Config::kN, b_major>(place + Config::kBytesA, b, first_n, step,
                                      &barriers.full[stage]);
  }
}

// A warp group's 64 rows.
template <typename Config, gpu::Major a_major, gpu::Major b_major>
GPU_FUNCTION void multiply_stages(float (&sums)[Config::kN / 2], const StageBarriers& barriers,
                                  const unsigned char* stages, int group, int steps) {
  for (int step = 0; step < steps; ++step) {
    const int stage = step % Config::kStages;
    const unsigned parity = step / Config::kStages % 2;
    std::uint64_t* const full = &barriers.full[stage];
    REQUIRED(wgmma_stage_arrived, gpu::mbarrier_wait(full, parity));
    const unsigned char* a = stages + stage * Config::kStageBytes;
    const unsigned char* b = a + Config::kBytesA;
    gpu::wgmma_fence();
    UNROLL for (int k = 0; k < kWgmmaDepth / gpu::kProductDepth; ++k) {
      gpu::wgmma_multiply<a_major, b_major>(sums, operand_at<a_major>(a, group, k),
                                            operand_at<b_major>(b, 0, k), step + k > 0);
    }
    gpu::wgmma_commit();
    REQUIRED(wgmma_previous_done, gpu::wgmma_wait<1>());
    if (step > 0) {
      // One arrival for a warp: 256 of them would queue at the barrier.
      std::uint64_t* const before = &barriers.empty[(step - 1) % Config::kStages];
      REQUIRED(wgmma_warp_done, __syncwarp());
      if (gpu::lane() == 0) REQUIRED(wgmma_stage_released, gpu::mbarrier_arrive(before));
    }
  }
  REQUIRED(wgmma_all_done, gpu::wgmma_wait<0>());
  gpu::wgmma_results(sums);
}

// This warp's 16 rows by way of shared memory, so that a warp reads and writes C's rows and not its
// fragments.
template <typename Config>
GPU_FUNCTION void finish_rows(const GemmOutput& out, const float (&sums)[Config::kN / 2],
                              float* shared, int first_m, int first_n) {
  constexpr int kRows = gpu::kProductRows / 4;
  constexpr int kStride = Config::kN + 8;  // rows of a fragment in different banks
  static_assert(Config::kConsumerThreads / gpu::kWarp * kRows * kStride * sizeof(float) <=
                Config::kStages * Config::kStageBytes);
  float* const own = shared + gpu::warp() * kRows * kStride;
  UNROLL for (int j = 0; j < Config::kN / 8; ++j) {
    UNROLL for (int h = 0; h < 2; ++h) {
      gpu::store_values(own + (gpu::lane() / 4 + h * 8) * kStride + j * 8 + gpu::lane() % 4 * 2,
                        gpu::Values<2>{{sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]}});
    }
  }
  REQUIRED(wgmma_sums_written, __syncwarp());
  for (int r = 0; r < kRows; ++r) {
    UNROLL for (int c = 0; c < Config::kN; c += 2 * gpu::kWarp) {
      const int column = c + gpu::lane() * 2;
      const auto pair = gpu::load_values<2>(own + r * kStride + column);
      finish_pair(out, first_m + gpu::warp() * kRows + r, first_n + column, pair.v[0], pair.v[1]);
    }
  }
}

template <typename Config, gpu::Major a_major, gpu::Major b_major>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocksAtOnce)
    gemm_wgmma_kernel(const __grid_constant__ device::TensorMap a,
                      const __grid_constant__ device::TensorMap b,
                      const __grid_constant__ GemmOutput out, WgmmaPlace place) {
  SHARED_DYNAMIC(unsigned char, stages);
  auto* const full =
      reinterpret_cast<std::uint64_t*>(stages + Config::kStages * Config::kStageBytes);
  const StageBarriers barriers = {full, full + Config::kStages};
  const TileIndex tile = tile_of(blockIdx.x, place.tiles_m, place.tiles_n);
  const int first_m = static_cast<int>(tile.m) * Config::kM;
  const int first_n = static_cast<int>(tile.n) * Config::kN;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      gpu::mbarrier_init(&barriers.full[i], 1);
      gpu::mbarrier_init(&barriers.empty[i], Config::kConsumerThreads / gpu::kWarp);
    }
    gpu::mbarrier_fence_init();
  }
  REQUIRED(wgmma_barriers_ready, __syncthreads());
  if (threadIdx.x >= Config::kConsumerThreads) {
    if (threadIdx.x == Config::kConsumerThreads)
      fill_stages<Config, a_major, b_major>(a, b, barriers, stages, first_m, first_n, place.steps);
  } else {
    const int group = static_cast<int>(threadIdx.x) / (4 * gpu::kWarp);
    // The first product writes them. Zeros would make ptxas let each product wait for the last.
    float sums[Config::kN / 2];
    multiply_stages<Config, a_major, b_major>(sums, barriers, stages, group, place.steps);
    // Both groups have left the stages; what the copy unit wrote has arrived.
    REQUIRED(wgmma_stages_left, gpu::named_barrier_sync<1>(Config::kConsumerThreads));
    finish_rows<Config>(out, sums, reinterpret_cast<float*>(stages), first_m, first_n);
  }
}

namespace {

std::int64_t tiles_over(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }

// A matrix of `outer` rows (columns of B) whose summands lie as its major says.
template <gpu::Major major>
device::TensorMap map_of(const bf16* data, std::int64_t outer, std::int64_t depth,
                         std::int64_t stride, int tile) {
  constexpr bool kByDepth = major == gpu::Major::kDepth;
  return device::make_tensor_map({data, static_cast<std::uint64_t>(kByDepth ? outer : depth),
                                  static_cast<std::uint64_t>(kByDepth ? depth : outer),
                                  static_cast<std::uint64_t>(stride),
                                  static_cast<std::uint32_t>(kByDepth ? tile : kWgmmaDepth)});
}

template <typename Config, gpu::Major a_major, gpu::Major b_major>
void launch_wgmma(const DeviceGemm& call, device::Stream& stream) {
  const GemmShape& s = call.shape;
  const WgmmaPlace place = {static_cast<int>(tiles_over(s.k, kWgmmaDepth)),
                            tiles_over(s.m, Config::kM), tiles_over(s.n, Config::kN)};
  const device::LaunchShape shape = {.grid = {static_cast<unsigned>(place.tiles_m * place.tiles_n)},
                                     .block = {Config::kThreads},
                                     .shared_bytes = Config::kSharedBytes};
  device::launch(gemm_wgmma_kernel<Config, a_major, b_major>, shape, stream,
                 map_of<a_major>(call.a, s.m, s.k, s.a_stride, Config::kM),
                 map_of<b_major>(call.b, s.n, s.k, s.b_stride, Config::kN), output_of(call), place);
}

// Nothing in training transposes both.
template <typename Config>
void run_wgmma(const DeviceGemm& call, device::Stream& stream) {
  using gpu::Major;
  if (call.shape.b_form == Form::kTransposed)
    return launch_wgmma<Config, Major::kDepth, Major::kDepth>(call, stream);
  if (call.shape.a_form == Form::kPlain)
    return launch_wgmma<Config, Major::kDepth, Major::kOuter>(call, stream);
  return launch_wgmma<Config, Major::kOuter, Major::kOuter>(call, stream);
}

bool suits_wgmma(const DeviceGemm& call, const device::Properties& properties) {
  const GemmShape& s = call.shape;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // box coordinates are 32 bits
  return properties.major == 9 && (s.a_form == Form::kPlain || s.b_form == Form::kPlain) &&
         s.m > 0 && s.n > 0 && s.k > 0 && s.m < kMost && s.n < kMost && s.k < kMost &&
         is_aligned16(call.a) && is_aligned16(call.b) && s.a_stride % 8 == 0 && s.b_stride % 8 == 0;
}

template <typename Config>
std::int64_t tiles(const GemmShape& shape) {
  return tiles_over(shape.m, Config::kM) * tiles_over(shape.n, Config::kN);
}

constexpr std::string_view kWgmmaNeeds =
    "compute capability 9.0, rows at multiples of 16 bytes, not both transposed";

}  // namespace

const GemmVersion& gemm_wgmma() {
  static constexpr GemmVersion kVersion = {
      "wgmma_128x128", kWgmmaNeeds, suits_wgmma,
      [](const GemmShape& s) { return tiles<WgmmaTile>(s) >= 64; }, run_wgmma<WgmmaTile>};
  return kVersion;
}

// Where every multiprocessor has a tile, and the sums are long beside what begins and ends them.
const GemmVersion& gemm_wgmma_wide() {
  static constexpr GemmVersion kVersion = {
      "wgmma_128x256", kWgmmaNeeds, suits_wgmma,
      [](const GemmShape& s) { return tiles<WideWgmmaTile>(s) >= 128 && s.k >= 2048; },
      run_wgmma<WideWgmmaTile>};
  return kVersion;
}

}  // namespace sinew::kernels
