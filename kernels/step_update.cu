#include "kernels/step_update_gpu.h"

#include "kernels/device/elementwise.h"
#include "sched/base/check.h"

namespace sinew::kernels {

struct NoteNotFinite {
  const float* data;
  Spans spans;
  std::uint64_t* flags;

  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    constexpr std::uint32_t kExponent = 0x7f800000U;
    const auto values = gpu::load_values<kWidth>(data + i);
    UNROLL for (int j = 0; j < kWidth; ++j) {
      if ((gpu::float_to_bits(values.v[j]) & kExponent) != kExponent) continue;
      int span = 0;
      while (span + 1 < spans.count && i + j >= spans.end[static_cast<std::size_t>(span)]) ++span;
      // Threads that find others of the span say the same.
      gpu::store_relaxed_sys(flags + span, 1);
    }
  }
};

__global__ void __launch_bounds__(gpu::kWarp)
    finish_norm_kernel(const double* square_sums, std::int64_t count, Clip clip,
                       StepUpdate* update) {
  if (threadIdx.x != 0) return;
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += square_sums[i];
  const double norm = sqrt(total);
  const double coefficient = clip.clip / (norm + clip.guard);
  update->norm = norm;
  update->gradient_scale =
      clip.clip > 0 && coefficient < 1 ? static_cast<float>(coefficient) : 1.0F;
  update->skipped = norm - norm == 0 ? 0 : 1;  // infinity and NaN have no difference
}

void note_not_finite(const float* data, const Spans& spans, std::uint64_t* flags,
                     device::Stream& stream) {
  CHECK_LE(spans.count, Spans::kMost);
  if (spans.count == 0) return;
  const std::int64_t count = spans.end[static_cast<std::size_t>(spans.count) - 1];
  launch_elementwise<gpu::kWidest<float>>(NoteNotFinite{data, spans, flags}, count, {data}, stream);
}

void finish_norm(const double* square_sums, std::int64_t count, const Clip& clip,
                 StepUpdate* update, device::Stream& stream) {
  device::launch(finish_norm_kernel, {.block = {gpu::kWarp}}, stream, square_sums, count, clip,
                 update);
}

}  // namespace sinew::kernels
