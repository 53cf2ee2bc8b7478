// The vector element-wise and column-wise kernels.
#include <array>

#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

template <typename T>
void add(T* target, const T* source, std::int64_t count) {
  for_each_pack<T>(count, [&](auto io, std::int64_t i) SINEW_LAMBDA {
    io.store(add_packs(io.load(target + i), io.load(source + i)), target + i);
  });
}

template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) add(y + r * channels, bias, channels);
}

// d_bias += the next `rows` rows; d_y is at the first column of the range.
template <int rows, typename T>
HWY_INLINE void add_rows(const T* d_y, float* d_bias, std::int64_t channels, std::int64_t count) {
  for_each_pack<T>(count, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    auto sum = io.load(d_bias + c);
    for (int r = 0; r < rows; ++r) sum = add_packs(sum, io.load(d_y + r * channels + c));
    io.store(sum, d_bias + c);
  });
}

// Rows in groups, so that memory is read in a few long streams and the sums are not stored for each
// row.
template <typename T>
void bias_backward(const T* d_y, float* d_bias, std::int64_t rows, std::int64_t channels,
                   std::int64_t begin, std::int64_t end) {
  // Of bf16 more, since its sums are also taken apart and put together.
  constexpr int kGroup = kPackVectors<T> == 1 ? 4 : 8;
  std::int64_t r = 0;
  for (; r + kGroup <= rows; r += kGroup) {
    add_rows<kGroup>(d_y + r * channels + begin, d_bias + begin, channels, end - begin);
  }
  for (; r < rows; ++r)
    add_rows<1>(d_y + r * channels + begin, d_bias + begin, channels, end - begin);
}

using Double = hn::ScalableTag<double>;
using DoubleVec = hn::Vec<Double>;
constexpr std::size_t kDoubles = hn::MaxLanes(Double());
constexpr std::size_t kSquareVectors = kSquareLanes / kDoubles;

// Squares of f32 are exact in f64, so the fused multiply-add rounds as the plain product and sum
// do.
HWY_INLINE void add_squares(FloatVec value, DoubleVec& low, DoubleVec& high) {
  const Double d;
  const auto lower = hn::PromoteTo(d, hn::LowerHalf(value));
  const auto upper = hn::PromoteTo(d, hn::UpperHalf(hn::Half<FloatTag>(), value));
  low = hn::MulAdd(lower, lower, low);
  high = hn::MulAdd(upper, upper, high);
}

// lanes[j] of elementwise.h of elements [0, count), a multiple of kSquareLanes: in the packs' order
// of lanes, then put in its own.
template <typename T>
HWY_INLINE void sum_lanes(const T* data, std::int64_t count, double* lanes) {
  constexpr auto kPacks = static_cast<int>(kSquareLanes / kPackElements<T>);
  constexpr auto kVectors = static_cast<int>(kPackVectors<T>);
  const Double d;
  DoubleVec sums[kSquareVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += kSquareLanes) {
    for_rows<kPacks>([&](auto p) SINEW_LAMBDA {
      const auto pack = Whole<T>{}.load(data + i + p * kPackElements<T>);
      for_rows<kVectors>([&](auto v) SINEW_LAMBDA {
        constexpr int kFirst = (p * kVectors + v) * 2;
        add_squares(pack.v[v], sums[kFirst], sums[kFirst + 1]);
      });
    });
  }
  HWY_ALIGN double ordered[kSquareLanes];
  for (std::size_t j = 0; j < kSquareVectors; ++j) hn::Store(sums[j], d, ordered + j * kDoubles);
  constexpr auto kOfPack = static_cast<std::size_t>(kPackElements<T>);
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
    const std::size_t in_pack = lane % kOfPack;
    const std::size_t vector = in_pack % kVectors;  // even and odd elements of bf16
    lanes[lane] =
        ordered[lane / kOfPack * kOfPack + vector * (kOfPack / kVectors) + in_pack / kVectors];
  }
}

template <typename T>
double sum_of_squares(const T* data, std::int64_t count) {
  std::array<double, kSquareLanes> lanes;
  std::int64_t i = count / kSquareLanes * kSquareLanes;
  sum_lanes(data, i, lanes.data());
  for (; i < count; ++i) {
    const auto value = static_cast<double>(widen(data[i]));
    lanes[static_cast<std::size_t>(i % kSquareLanes)] += value * value;
  }
  for (std::size_t half = kSquareLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace

constexpr ElementwiseFunctions<float> kElementwiseF32 = {
    add<float>, add_bias<float>, bias_backward<float>, sum_of_squares<float>};
constexpr ElementwiseFunctions<bf16> kElementwiseBf16 = {add<bf16>, add_bias<bf16>,
                                                         bias_backward<bf16>, sum_of_squares<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const ElementwiseFunctions<float>* elementwise_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kElementwiseF32);
}
template <>
const ElementwiseFunctions<bf16>* elementwise_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kElementwiseBf16);
}

}  // namespace sinew::kernels
#endif
