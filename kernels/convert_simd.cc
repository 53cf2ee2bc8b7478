// The vector conversions: the scalar algorithms of dtype.cc and float8.h on lanes, the processor's
// own for f16.
#include <cstring>

#include "kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/float8_simd_inl.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

using WordTag = hn::ScalableTag<std::uint32_t>;
constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

// A signalling NaN may have its only bits in the half that bf16 drops, which would make it an
// infinity; its quiet bit lies in the half that is kept.
HWY_INLINE FloatVec quieted(FloatVec value) {
  const FloatTag d;
  const auto quiet_bit = hn::BitCast(d, hn::Set(WordTag(), 0x400000));
  return hn::IfThenElse(hn::IsNaN(value), hn::Or(value, quiet_bit), value);
}

void to_bf16(const float* source, bf16* target, std::int64_t count) {
  // The source counts as two arrays of the target's size.
  for_each_pack_into(target, count, 2, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    io.store(apply([](FloatVec v) SINEW_LAMBDA { return quieted(v); }, io.load(source + i)),
             target + i);
  });
}

// narrow(vector), the bits of the narrow elements, and widen(from) on whole vectors; parts go
// through a buffer. Results that do not fit the cache bypass it.
template <typename E, class Narrow>
HWY_INLINE void narrow_all(const float* source, E* target, std::int64_t count,
                           const Narrow& narrow) {
  using Bits = std::conditional_t<sizeof(E) == 1, std::uint8_t, std::uint16_t>;
  const hn::Rebind<Bits, FloatTag> d;
  const auto bits = [](E* to) { return reinterpret_cast<Bits*>(to); };
  const auto part = [&](std::int64_t i, std::int64_t n) SINEW_LAMBDA {
    E buffer[kLanes];
    const auto elements = static_cast<std::size_t>(n);
    hn::StoreU(narrow(load_part(FloatTag(), source + i, elements)), d, bits(buffer));
    std::memcpy(target + i, buffer, elements * sizeof(E));
  };
  std::int64_t i = 0;
  // The processor's shortest store past the cache is of 16 bytes.
  constexpr bool kCanBypass = kLanes * sizeof(E) >= 16;
  if (kCanBypass && bypasses_cache(count * static_cast<std::int64_t>(sizeof(E) + sizeof(float)))) {
    i = elements_to_alignment(target, kLanes);
    if (i > 0) part(0, i);
    for (; i + kLanes <= count; i += kLanes)
      hn::Stream(narrow(hn::LoadU(FloatTag(), source + i)), d, bits(target + i));
    hwy::FlushStream();
  } else {
    for (; i + kLanes <= count; i += kLanes)
      hn::StoreU(narrow(hn::LoadU(FloatTag(), source + i)), d, bits(target + i));
  }
  if (i < count) part(i, count - i);
}

template <typename E, class Widen>
HWY_INLINE void widen_all(const E* source, float* target, std::int64_t count, const Widen& widen) {
  const auto part = [&](std::int64_t i, std::int64_t n) SINEW_LAMBDA {
    E buffer[kLanes] = {};
    const auto elements = static_cast<std::size_t>(n);
    std::memcpy(buffer, source + i, elements * sizeof(E));
    store_part(widen(buffer), FloatTag(), target + i, elements);
  };
  const FloatTag d;
  if (bypasses_cache(count * static_cast<std::int64_t>(sizeof(E) + sizeof(float)))) {
    std::int64_t i = elements_to_alignment(target, kLanes);
    if (i > 0) part(0, i);
    for (; i + kLanes <= count; i += kLanes) hn::Stream(widen(source + i), d, target + i);
    if (i < count) part(i, count - i);
    hwy::FlushStream();
  } else {
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(widen(source + i), d, target + i);
    if (i < count) part(i, count - i);
  }
}

void from_bf16(const bf16* source, float* target, std::int64_t count) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  widen_all(source, target, count, [&](const bf16* from) SINEW_LAMBDA {
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), bits)));
  });
}

void to_f16(const float* source, f16* target, std::int64_t count) {
  const hn::Rebind<hwy::float16_t, FloatTag> d_half;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  narrow_all(source, target, count, [&](FloatVec value) SINEW_LAMBDA {
    return hn::BitCast(d16, hn::DemoteTo(d_half, value));
  });
}

void from_f16(const f16* source, float* target, std::int64_t count) {
  const hn::Rebind<hwy::float16_t, FloatTag> d_half;
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  widen_all(source, target, count, [&](const f16* from) SINEW_LAMBDA {
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
    return hn::PromoteTo(FloatTag(), hn::BitCast(d_half, bits));
  });
}

template <typename T>
void to_8(const float* source, float scale, T* target, std::int64_t count) {
  const auto factor = hn::Set(FloatTag(), scale);
  narrow_all(source, target, count, [&](FloatVec value) SINEW_LAMBDA {
    return narrow_float8<T>(FloatTag(), hn::Mul(value, factor));
  });
}

template <typename T>
void from_8(const T* source, float scale, float* target, std::int64_t count) {
  const ByteTag<FloatTag> d8;
  const auto factor = hn::Set(FloatTag(), scale);
  widen_all(source, target, count, [&](const T* from) SINEW_LAMBDA {
    const auto bytes = hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from));
    return hn::Mul(widen_float8<T>(FloatTag(), bytes), factor);
  });
}

// Two chains; the operand order passes over a NaN: the maximum is its second operand when
// unordered.
float largest(const float* data, std::int64_t count) {
  const FloatTag d;
  auto max0 = hn::Zero(d);
  auto max1 = max0;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    max0 = hn::Max(hn::Abs(hn::LoadU(d, data + i)), max0);
    max1 = hn::Max(hn::Abs(hn::LoadU(d, data + i + kLanes)), max1);
  }
  for (; i < count; i += kLanes) {
    const auto rest = static_cast<std::size_t>(count - i < kLanes ? count - i : kLanes);
    max0 = hn::Max(hn::Abs(load_part(d, data + i, rest)), max0);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max0, max1)));
}

}  // namespace

constexpr ConvertFunctions kConvert = {to_bf16,      from_bf16,  to_f16,       from_f16, to_8<e4m3>,
                                       from_8<e4m3>, to_8<e5m2>, from_8<e5m2>, largest};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

const ConvertFunctions* convert_simd(Isa isa) { return SINEW_SIMD_VERSION(isa, kConvert); }

}  // namespace sinew::kernels
#endif
