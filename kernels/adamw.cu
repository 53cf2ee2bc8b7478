#include "kernels/adamw_gpu.h"
#include "kernels/device/elementwise.h"
#include "sched/base/philox.h"

namespace sinew::kernels {

struct AdamWElement {
  float weight;
  float first_moment;
  float second_moment;
};

// The plain CPU version's operations in its order.
GPU_FUNCTION AdamWElement adamw_step(const AdamWFactors<float>& k, float gradient,
                                     const AdamWElement& old) {
  const float g = gradient * k.gradient_scale;
  const float m = k.beta1 * old.first_moment + k.rest1 * g;
  const float v = k.beta2 * old.second_moment + k.rest2 * (g * g);
  const float direction = m * k.correction1 / (sqrtf(v * k.correction2) + k.epsilon);
  return {old.weight - k.lr * (direction + k.decay * old.weight), m, v};
}

// The factors of this step: those that only the device knows are found where it left them.
GPU_FUNCTION AdamWFactors<float> factors_of(const AdamWFactors<float>& known,
                                            const StepUpdate* update) {
  AdamWFactors<float> factors = known;
  if (update != nullptr) {
    factors.lr = update->lr;
    factors.correction1 = update->correction1;
    factors.correction2 = update->correction2;
    factors.gradient_scale = update->gradient_scale;
  }
  return factors;
}
GPU_FUNCTION bool is_skipped(const StepUpdate* update) {
  return update != nullptr && update->skipped != 0;
}

template <typename G>
struct AdamWMaster {
  AdamWFactors<float> known;
  const StepUpdate* update;
  const G* gradient;
  float* weight;
  float* first_moment;
  float* second_moment;
  bf16* working;

  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    if (is_skipped(update)) return;
    const AdamWFactors<float> factors = factors_of(known, update);
    const auto g = gpu::load_values<kWidth>(gradient + i);
    auto w = gpu::load_values<kWidth>(weight + i);
    auto m = gpu::load_values<kWidth>(first_moment + i);
    auto v = gpu::load_values<kWidth>(second_moment + i);
    UNROLL for (int j = 0; j < kWidth; ++j) {
      const AdamWElement next = adamw_step(factors, g.v[j], {w.v[j], m.v[j], v.v[j]});
      w.v[j] = next.weight;
      m.v[j] = next.first_moment;
      v.v[j] = next.second_moment;
    }
    gpu::store_values(weight + i, w);
    gpu::store_values(first_moment + i, m);
    gpu::store_values(second_moment + i, v);
    if (working != nullptr) gpu::store_values(working + i, w);
  }
};

// round_stochastically of mixed_adamw.h.
GPU_FUNCTION bf16 round_by(float value, std::uint32_t bits16) {
  const std::uint32_t bits = gpu::float_to_bits(value);
  if ((bits & 0x7f800000U) == 0x7f800000U) return gpu::narrow_bf16(value);
  return {static_cast<std::uint16_t>((bits + bits16) >> 16)};
}

template <typename G>
struct AdamWStochastic {
  AdamWFactors<float> known;
  Philox philox;
  std::uint64_t stream;
  const StepUpdate* update;
  std::int64_t first_index;
  const G* gradient;
  bf16* weight;
  float* first_moment;
  float* second_moment;

  // Bits of random.h. Four neighbours that begin at a multiple of four share a counter.
  template <int kWidth>
  GPU_FUNCTION void apply(std::int64_t i) const {
    if (is_skipped(update)) return;
    const AdamWFactors<float> factors = factors_of(known, update);
    const std::uint64_t drawn = stream + (update != nullptr ? update->rounding_stream : 0);
    const auto g = gpu::load_values<kWidth>(gradient + i);
    auto w = gpu::load_values<kWidth>(weight + i);
    auto m = gpu::load_values<kWidth>(first_moment + i);
    auto v = gpu::load_values<kWidth>(second_moment + i);
    std::array<std::uint32_t, 4> words{};
    UNROLL for (int j = 0; j < kWidth; ++j) {
      const AdamWElement next = adamw_step(factors, g.v[j], {w.v[j], m.v[j], v.v[j]});
      const std::int64_t place = (first_index + i + j) % kRandomBlock;
      if (j == 0 || place % 4 == 0) {
        const std::int64_t counter =
            (first_index + i + j) / kRandomBlock * kBlockCounters + place / 64 * 8 + place % 32 / 4;
        words = philox.words(static_cast<std::uint64_t>(counter), drawn);
      }
      const auto word = static_cast<std::size_t>(place / 32 % 2 * 2 + 1 - place % 4 / 2);
      weight[i + j] = round_by(next.weight, words[word] >> (place % 2 * 16) & 0xffffU);
      m.v[j] = next.first_moment;
      v.v[j] = next.second_moment;
    }
    gpu::store_values(first_moment + i, m);
    gpu::store_values(second_moment + i, v);
  }
};

namespace {

constexpr int kAdamWWidth = 4;  // four f32 are one access of 16 bytes

}  // namespace

template <typename G>
void adamw(const AdamW& options, std::int64_t count, const G* gradient, float* weight,
           float* first_moment, float* second_moment, bf16* working, device::Stream& stream,
           const StepUpdate* update) {
  launch_elementwise<kAdamWWidth>(AdamWMaster<G>{AdamWFactors<float>(options), update, gradient,
                                                 weight, first_moment, second_moment, working},
                                  count, {gradient, weight, first_moment, second_moment, working},
                                  stream);
}

template <typename G>
void adamw_stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                      std::int64_t count, const G* gradient, bf16* weight, float* first_moment,
                      float* second_moment, device::Stream& stream, const StepUpdate* update) {
  const AdamWStochastic<G> body = {AdamWFactors<float>(options),
                                   Philox(random.seed, random.purpose),
                                   random.stream,
                                   update,
                                   first_index,
                                   gradient,
                                   weight,
                                   first_moment,
                                   second_moment};
  launch_elementwise<kAdamWWidth>(body, count, {gradient, weight, first_moment, second_moment},
                                  stream);
}

template void adamw<float>(const AdamW&, std::int64_t, const float*, float*, float*, float*, bf16*,
                           device::Stream&, const StepUpdate*);
template void adamw<bf16>(const AdamW&, std::int64_t, const bf16*, float*, float*, float*, bf16*,
                          device::Stream&, const StepUpdate*);
template void adamw_stochastic<float>(const AdamW&, const RandomStream&, std::int64_t, std::int64_t,
                                      const float*, bf16*, float*, float*, device::Stream&,
                                      const StepUpdate*);
template void adamw_stochastic<bf16>(const AdamW&, const RandomStream&, std::int64_t, std::int64_t,
                                     const bf16*, bf16*, float*, float*, device::Stream&,
                                     const StepUpdate*);

}  // namespace sinew::kernels
