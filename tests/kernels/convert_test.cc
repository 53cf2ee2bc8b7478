// Laws of the conversions: every 8-bit value survives the round trip, each result is the nearest
// value with ties to even (found by searching all of them), every version gives the scalar
// functions' bits.
#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/element.h"
#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

// Floats of every exponent and both signs, neighbourhoods of rounding ties, and the special values.
std::vector<float> interesting_floats() {
  std::vector<float> values = {0.0F,    -0.0F,    INFINITY, -INFINITY, NAN,     1e-45F,
                               3.4e38F, -3.4e38F, 447.9F,   448.0F,    463.9F,  464.0F,
                               465.0F,  57344.0F, 61440.0F, 65519.0F,  65520.0F};
  std::mt19937_64 random(1);
  for (int i = 0; i < 30000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t exponent = 90; exponent < 150; ++exponent) {
    for (std::uint32_t fraction = 0; fraction < 64; ++fraction) {
      for (const int nudge : {-1, 0, 1}) {
        const std::uint32_t bits = (exponent << 23) + (fraction << 17);
        values.push_back(std::bit_cast<float>(bits + static_cast<std::uint32_t>(nudge)));
        values.push_back(-values.back());
      }
    }
  }
  return values;
}

template <typename T>
class Float8 : public testing::Test {};
using Types = testing::Types<e4m3, e5m2>;
TYPED_TEST_SUITE(Float8, Types);

TYPED_TEST(Float8, EveryValueSurvivesTheRoundTrip) {
  using T = TypeParam;
  for (int bits = 0; bits < 256; ++bits) {
    const T value{static_cast<std::uint8_t>(bits)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_float8<T>(wide))));
    } else if (std::isinf(wide)) {
      EXPECT_EQ(to_float(to_float8<T>(wide)), std::copysign(Float8Traits<T>::kLargest, wide));
    } else {
      EXPECT_EQ(to_float8<T>(wide).bits, value.bits);
    }
  }
  EXPECT_EQ(to_float(T{1}), smallest_float8<T>());
}

TYPED_TEST(Float8, RoundsToTheNearestOfAllValuesWithTiesToEven) {
  using T = TypeParam;
  const std::vector<float> values = interesting_floats();
  for (std::size_t i = 0; i < values.size(); i += 7) {
    const float value = values[i];
    if (std::isnan(value)) continue;
    double nearest = INFINITY;
    int best = 0;
    for (int bits = 0; bits < 128; ++bits) {
      const double candidate = to_float(T{static_cast<std::uint8_t>(bits)});
      if (!std::isfinite(candidate)) continue;
      // Infinity and what lies beyond the largest value become the largest value.
      const double magnitude = std::min<double>(std::abs(value), Float8Traits<T>::kLargest);
      const double distance = std::abs(magnitude - candidate);
      if (distance < nearest || (distance == nearest && bits % 2 == 0)) {
        nearest = distance;
        best = bits;
      }
    }
    const int sign = std::signbit(value) ? 0x80 : 0;
    ASSERT_EQ(to_float8<T>(value).bits, sign | best) << value;
  }
}

// down(source, target, count) and up(source, target, count) of one version against the scalar
// functions.
template <typename T, class Down, class Up>
void expect_scalar_bits(std::string_view version, const Down& down, const Up& up) {
  const std::vector<float> values = interesting_floats();
  const auto all = static_cast<std::int64_t>(values.size());
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{16}, std::int64_t{31},
        std::int64_t{33}, std::int64_t{67}, all}) {
    Guarded<float> source(count, 1);
    std::copy(values.begin(), values.begin() + count, source.data());
    Guarded<T> target(count, 3);
    Guarded<float> back(count, 5);
    down(source.data(), target.data(), count);
    up(target.data(), back.data(), count);
    ASSERT_TRUE(target.is_intact() && back.is_intact());
    for (std::int64_t i = 0; i < count; ++i) {
      const T expected = narrow<T>(source[i]);
      if (std::isnan(source[i])) {
        ASSERT_TRUE(std::isnan(widen(target[i])) && std::isnan(back[i])) << version;
      } else {
        ASSERT_EQ(target[i].bits, expected.bits) << version << " " << source[i];
        ASSERT_EQ(back[i], widen(expected)) << version << " " << source[i];
      }
    }
  }
}

TEST(ConvertVersions, GiveTheScalarBits) {
  for (const auto& version : versions_of<ConvertFunctions>()) {
    const ConvertFunctions& f = *version.functions;
    expect_scalar_bits<bf16>(version.version, f.to_bf16, f.from_bf16);
    expect_scalar_bits<f16>(version.version, f.to_f16, f.from_f16);
    expect_scalar_bits<e4m3>(
        version.version, [&](const float* s, e4m3* t, std::int64_t n) { f.to_e4m3(s, 1.0F, t, n); },
        [&](const e4m3* s, float* t, std::int64_t n) { f.from_e4m3(s, 1.0F, t, n); });
    expect_scalar_bits<e5m2>(
        version.version, [&](const float* s, e5m2* t, std::int64_t n) { f.to_e5m2(s, 1.0F, t, n); },
        [&](const e5m2* s, float* t, std::int64_t n) { f.from_e5m2(s, 1.0F, t, n); });
  }
}

TEST(ConvertVersions, ScalesAndLargestMagnitude) {
  for (const auto& version : versions_of<ConvertFunctions>()) {
    std::mt19937_64 random(2);
    for (std::int64_t count = 0; count < 120; ++count) {
      const auto x = normal_values<float>(count, random, 10.0, count % 5);
      float expected = 0;
      for (std::int64_t i = 0; i < count; ++i) expected = std::max(expected, std::abs(x[i]));
      EXPECT_EQ(version.functions->max_abs(x.data(), count), expected) << version.version;
      std::vector<e4m3> narrow_x(static_cast<std::size_t>(count));
      version.functions->to_e4m3(x.data(), 3.0F, narrow_x.data(), count);
      std::vector<float> back(narrow_x.size());
      version.functions->from_e4m3(narrow_x.data(), 0.25F, back.data(), count);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto s = static_cast<std::size_t>(i);
        EXPECT_EQ(narrow_x[s].bits, to_float8<e4m3>(x[i] * 3.0F).bits);
        EXPECT_EQ(back[s], to_float(narrow_x[s]) * 0.25F);
      }
    }
    float with_nan[40] = {};
    with_nan[3] = NAN;
    with_nan[20] = -2.0F;
    with_nan[39] = NAN;
    EXPECT_EQ(version.functions->max_abs(with_nan, 40), 2.0F) << version.version;
  }
}

// Arrays beyond the cache are written past it, from the first aligned element on.
TEST(ConvertVersions, LargeArraysGiveTheSameBits) {
  const std::int64_t count = cpu().l3_bytes / 8 + 4099;
  std::mt19937_64 random(4);
  Guarded<float> source(count, 1);
  for (std::int64_t i = 0; i < count; ++i)
    source[i] = static_cast<float>(random() % 100000) * 0.37F;
  Guarded<bf16> narrowed(count, 3);
  Guarded<f16> halved(count, 5);
  Guarded<float> back(count, 7);
  for (const auto& version : versions_of<ConvertFunctions>()) {
    version.functions->to_bf16(source.data(), narrowed.data(), count);
    version.functions->from_bf16(narrowed.data(), back.data(), count);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(narrowed[i].bits, to_bf16(source[i]).bits) << version.version << " " << i;
      ASSERT_EQ(back[i], sinew::to_float(narrowed[i])) << version.version << " " << i;
    }
    version.functions->to_f16(source.data(), halved.data(), count);
    version.functions->from_f16(halved.data(), back.data(), count);
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(back[i], sinew::to_float(to_f16(source[i]))) << version.version << " " << i;
    ASSERT_TRUE(narrowed.is_intact() && halved.is_intact() && back.is_intact());
  }
}

TEST(Convert, PublicFunctionsRoundTrip) {
  std::mt19937_64 random(3);
  const auto x = normal_values<float>(70000, random);
  std::vector<f16> half(70000);
  std::vector<float> back(70000);
  convert(x.data(), half.data(), 70000, {2, nullptr});
  convert(half.data(), back.data(), 70000, {2, nullptr});
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_NEAR(back[i], x[static_cast<std::int64_t>(i)], std::abs(back[i]) * 0x1p-11 + 0x1p-25);
  }
  std::vector<e5m2> eighth(70000);
  const float scale = 57344.0F / max_abs(x.data(), 70000);
  quantize(x.data(), scale, eighth.data(), 70000);
  dequantize(eighth.data(), 1 / scale, back.data(), 70000);
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_NEAR(back[i], x[static_cast<std::int64_t>(i)], std::abs(back[i]) * 0.126 + 1e-7);
  }
}

}  // namespace
}  // namespace sinew::kernels
