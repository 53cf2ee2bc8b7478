// GEMM for sm_90a: a copy unit fills a ring of stages in shared memory (box copies by tensor maps,
// barriers that count bytes), two warp groups multiply straight from there (wgmma).
//
// Protocol of a stage: `full` ends a phase when both boxes have arrived; `empty` when both warp
// groups have finished the products that read it. One thread of the first warp group fills, the
// other two groups multiply; a group keeps one step's products under way while it waits for the
// next stage, and hands the stage before back.
//
// Both operands must have the summed dimension contiguous (A plain, B transposed): the forward pass
// through weights [out, in], and the gradients of inputs through weights [in, out]. Source: PTX
// manual, wgmma.mma_async; the scheme of CUTLASS's warp-specialised kernels (Thakkar et al., 2023).
#include "kernels/device/gemm_finish.h"
#include "kernels/device/gpu.h"
#include "kernels/device/gpu/hopper.h"
#include "kernels/device/shapes.h"
#include "kernels/gemm_gpu.h"

namespace sinew::kernels {

struct WgmmaTile {
  static constexpr int kM = 128;
  static constexpr int kN = gpu::kProductColumns;
  static constexpr int kDepth = device::kBoxColumns;
  static constexpr int kStages = 4;
  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = kM / gpu::kProductRows;
  static constexpr int kThreads = (1 + kConsumers) * kGroupThreads;
  static constexpr int kBytesA = kM * kDepth * 2;
  static constexpr int kBytesB = kN * kDepth * 2;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kSharedBytes = kStages * kStageBytes;
};

struct WgmmaPlace {
  int steps;
  int tiles_m;
};

struct StageBarriers {
  std::uint64_t* full;
  std::uint64_t* empty;
};

// The thread that fills.
GPU_FUNCTION void fill_stages(const device::TensorMap& a, const device::TensorMap& b,
                              const StageBarriers& barriers, unsigned char* stages, int first_m,
                              int first_n, int steps) {
  for (int step = 0; step < steps; ++step) {
    const int stage = step % WgmmaTile::kStages;
    if (step >= WgmmaTile::kStages) {
      const unsigned parity = (step / WgmmaTile::kStages - 1) % 2;
      REQUIRED(wgmma_stage_is_free, gpu::mbarrier_wait(&barriers.empty[stage], parity));
    }
    REQUIRED(wgmma_bytes_expected,
             gpu::mbarrier_arrive_expect(&barriers.full[stage], WgmmaTile::kStageBytes));
    unsigned char* place = stages + stage * WgmmaTile::kStageBytes;
    gpu::load_box(place, a, step * WgmmaTile::kDepth, first_m, &barriers.full[stage]);
    gpu::load_box(place + WgmmaTile::kBytesA, b, step * WgmmaTile::kDepth, first_n,
                  &barriers.full[stage]);
  }
}

// A warp group's 64 rows.
GPU_FUNCTION void multiply_stages(float (&sums)[gpu::kProductValues], const StageBarriers& barriers,
                                  const unsigned char* stages, int group, int steps) {
  for (int step = 0; step < steps; ++step) {
    const int stage = step % WgmmaTile::kStages;
    const unsigned parity = step / WgmmaTile::kStages % 2;
    std::uint64_t* const full = &barriers.full[stage];
    REQUIRED(wgmma_stage_arrived, gpu::mbarrier_wait(full, parity));
    const unsigned char* a =
        stages + stage * WgmmaTile::kStageBytes + group * gpu::kProductRows * 128;
    const unsigned char* b = stages + stage * WgmmaTile::kStageBytes + WgmmaTile::kBytesA;
    gpu::wgmma_fence();
    UNROLL for (int k = 0; k < WgmmaTile::kDepth / gpu::kProductDepth; ++k) {
      constexpr int kStepBytes = gpu::kProductDepth * 2;
      gpu::wgmma_multiply(sums, gpu::tile_descriptor(a + k * kStepBytes),
                          gpu::tile_descriptor(b + k * kStepBytes), step + k > 0);
    }
    gpu::wgmma_commit();
    REQUIRED(wgmma_previous_done, gpu::wgmma_wait<1>());
    if (step > 0) {
      std::uint64_t* const before = &barriers.empty[(step - 1) % WgmmaTile::kStages];
      REQUIRED(wgmma_stage_released, gpu::mbarrier_arrive(before));
    }
  }
  REQUIRED(wgmma_all_done, gpu::wgmma_wait<0>());
}

__global__ void __launch_bounds__(WgmmaTile::kThreads, 1)
    gemm_wgmma_kernel(const __grid_constant__ device::TensorMap a,
                      const __grid_constant__ device::TensorMap b,
                      const __grid_constant__ GemmOutput out, WgmmaPlace place) {
  SHARED_DYNAMIC(unsigned char, stages);
  SHARED(std::uint64_t, full, WgmmaTile::kStages);
  SHARED(std::uint64_t, empty, WgmmaTile::kStages);
  const StageBarriers barriers = {full, empty};
  // Blocks that run at the same time share columns of B's tiles.
  const int first_m = static_cast<int>(blockIdx.x) % place.tiles_m * WgmmaTile::kM;
  const int first_n = static_cast<int>(blockIdx.x) / place.tiles_m * WgmmaTile::kN;
  const int group = static_cast<int>(threadIdx.x) / WgmmaTile::kGroupThreads;
  if (threadIdx.x == 0) {
    for (int i = 0; i < WgmmaTile::kStages; ++i) {
      gpu::mbarrier_init(&full[i], 1);
      gpu::mbarrier_init(&empty[i], WgmmaTile::kConsumers * WgmmaTile::kGroupThreads);
    }
    gpu::mbarrier_fence_init();
  }
  REQUIRED(wgmma_barriers_ready, __syncthreads());
  if (group == 0) {
    if (threadIdx.x == 0) fill_stages(a, b, barriers, stages, first_m, first_n, place.steps);
  } else {
    float sums[gpu::kProductValues] = {};
    multiply_stages(sums, barriers, stages, group - 1, place.steps);
    const int row =
        first_m + (group - 1) * gpu::kProductRows + gpu::warp() % 4 * 16 + gpu::lane() / 4;
    UNROLL for (int j = 0; j < gpu::kProductColumns / 8; ++j) {
      UNROLL for (int h = 0; h < 2; ++h) {
        finish_pair(out, row + h * 8, first_n + j * 8 + gpu::lane() % 4 * 2, sums[4 * j + 2 * h],
                    sums[4 * j + 2 * h + 1]);
      }
    }
  }
}

namespace {

int tiles_over(std::int64_t extent, int tile) {
  return static_cast<int>((extent + tile - 1) / tile);
}

void run_wgmma(const DeviceGemm& call, device::Stream& stream) {
  const GemmShape& s = call.shape;
  const device::TensorMap a = device::make_tensor_map(
      {call.a, static_cast<std::uint64_t>(s.m), static_cast<std::uint64_t>(s.k),
       static_cast<std::uint64_t>(s.a_stride), WgmmaTile::kM});
  const device::TensorMap b = device::make_tensor_map(
      {call.b, static_cast<std::uint64_t>(s.n), static_cast<std::uint64_t>(s.k),
       static_cast<std::uint64_t>(s.b_stride), WgmmaTile::kN});
  const WgmmaPlace place = {tiles_over(s.k, WgmmaTile::kDepth), tiles_over(s.m, WgmmaTile::kM)};
  const int blocks = place.tiles_m * tiles_over(s.n, WgmmaTile::kN);
  const device::LaunchShape shape = {.grid = {static_cast<unsigned>(blocks)},
                                     .block = {WgmmaTile::kThreads},
                                     .shared_bytes = WgmmaTile::kSharedBytes};
  device::launch(gemm_wgmma_kernel, shape, stream, a, b, output_of(call), place);
}

bool suits_wgmma(const DeviceGemm& call, const device::Properties& properties) {
  const GemmShape& s = call.shape;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // box coordinates are 32 bits
  return properties.major == 9 && s.a_form == Form::kPlain && s.b_form == Form::kTransposed &&
         s.m > 0 && s.n > 0 && s.k > 0 && s.m < kMost && s.n < kMost && s.k < kMost &&
         is_aligned16(call.a) && is_aligned16(call.b) && s.a_stride % 8 == 0 && s.b_stride % 8 == 0;
}

}  // namespace

const GemmVersion& gemm_wgmma() {
  static constexpr GemmVersion kVersion = {
      "wgmma_128x128",
      "compute capability 9.0, k contiguous in both operands, rows at multiples of 16 bytes",
      suits_wgmma,
      [](const GemmShape& s) {
        return tiles_over(s.m, WgmmaTile::kM) * tiles_over(s.n, WgmmaTile::kN) >= 64;
      },
      run_wgmma};
  return kVersion;
}

}  // namespace sinew::kernels
