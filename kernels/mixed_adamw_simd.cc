// The vector AdamW for bf16 weights.
#include "kernels/mixed_adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mixed_adamw_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/adamw_simd_inl.h"
#include "kernels/random_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

void with_master(const AdamW& options, std::int64_t count, const float* gradient, float* master,
                 bf16* weight, float* first_moment, float* second_moment) {
  const AdamWStep take_step(options);
  for_each_pack<bf16>(count, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    auto m = io.load(first_moment + i);
    auto v = io.load(second_moment + i);
    const auto w = take_step(io.load(gradient + i), io.load(master + i), m, v);
    io.store(w, master + i);
    io.store(w, weight + i);
    io.store(m, first_moment + i);
    io.store(v, second_moment + i);
  });
}

// f32 values whose low 16 bits are 0, so that storing them as bf16 rounds no more.
HWY_INLINE FloatVec rounded_stochastically(FloatVec value, WordVec noise) {
  const WordTag d;
  const auto sum = hn::Add(hn::BitCast(d, value), noise);
  const auto rounded = hn::BitCast(FloatTag(), hn::And(sum, hn::Set(d, 0xffff0000U)));
  return hn::IfThenElse(hn::IsFinite(value), rounded, value);
}

void stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                std::int64_t count, const float* gradient, bf16* weight, float* first_moment,
                float* second_moment) {
  const AdamWStep take_step(options);
  for_each_random_piece(
      random, first_index, count,
      [&](std::int64_t begin, std::int64_t piece, const std::uint16_t* bits) SINEW_LAMBDA {
        for_each_pack<bf16>(piece, [&](auto io, std::int64_t at) SINEW_LAMBDA {
          const std::int64_t i = begin + at;
          auto m = io.load(first_moment + i);
          auto v = io.load(second_moment + i);
          auto w = take_step(io.load(gradient + i), io.load(weight + i), m, v);
          const auto drawn = load_bits<bf16>(bits + at);
          w.v[0] = rounded_stochastically(w.v[0], drawn.v[0]);
          w.v[1] = rounded_stochastically(w.v[1], drawn.v[1]);
          io.store(w, weight + i);
          io.store(m, first_moment + i);
          io.store(v, second_moment + i);
        });
      });
}

}  // namespace

constexpr MixedAdamWFunctions kMixedAdamW = {with_master, stochastic};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

const MixedAdamWFunctions* mixed_adamw_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kMixedAdamW);
}

}  // namespace sinew::kernels
#endif
