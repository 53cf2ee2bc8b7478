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

using Float = hn::ScalableTag<float>;

template <typename T>
void add(T* target, const T* source, std::int64_t count) {
  const Float d;
  for_each_vector(d, count, [&](auto io, std::int64_t i) HWY_ATTR {
    io.store(hn::Add(io.load(d, target + i), io.load(d, source + i)), d, target + i);
  });
}

template <typename T>
void add_bias(T* y, const T* bias, std::int64_t rows, std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) add(y + r * channels, bias, channels);
}

// Strips of four vectors of columns stay in registers while the rows pass by.
template <typename T>
void bias_backward(const T* d_y, float* d_bias, std::int64_t rows, std::int64_t channels,
                   std::int64_t begin, std::int64_t end) {
  const Float d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = begin;
  for (; c + 4 * lanes <= end; c += 4 * lanes) {
    auto sum0 = hn::LoadU(d, d_bias + c);
    auto sum1 = hn::LoadU(d, d_bias + c + lanes);
    auto sum2 = hn::LoadU(d, d_bias + c + 2 * lanes);
    auto sum3 = hn::LoadU(d, d_bias + c + 3 * lanes);
    const AllLanes io;
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* row = d_y + r * channels + c;
      sum0 = hn::Add(sum0, io.load(d, row));
      sum1 = hn::Add(sum1, io.load(d, row + lanes));
      sum2 = hn::Add(sum2, io.load(d, row + 2 * lanes));
      sum3 = hn::Add(sum3, io.load(d, row + 3 * lanes));
    }
    hn::StoreU(sum0, d, d_bias + c);
    hn::StoreU(sum1, d, d_bias + c + lanes);
    hn::StoreU(sum2, d, d_bias + c + 2 * lanes);
    hn::StoreU(sum3, d, d_bias + c + 3 * lanes);
  }
  for_each_vector(d, end - c, [&](auto io, std::int64_t i) HWY_ATTR {
    auto sum = io.load(d, d_bias + c + i);
    for (std::int64_t r = 0; r < rows; ++r) {
      sum = hn::Add(sum, io.load(d, d_y + r * channels + c + i));
    }
    io.store(sum, d, d_bias + c + i);
  });
}

// Squares of f32 are exact in f64, so the fused multiply-add rounds as the plain product and sum
// do.
template <typename T>
double sum_of_squares(const T* data, std::int64_t count) {
  using Double = hn::ScalableTag<double>;
  const Double d;
  const hn::Rebind<float, Double> d_float;
  constexpr std::size_t kLanes = hn::MaxLanes(Double());
  constexpr std::size_t kVectors = kSquareLanes / kLanes;
  hn::Vec<Double> sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kSquareLanes <= count; i += kSquareLanes) {
    for (std::size_t j = 0; j < kVectors; ++j) {
      const auto value = hn::PromoteTo(
          d, AllLanes{}.load(d_float, data + i + static_cast<std::int64_t>(j * kLanes)));
      sums[j] = hn::MulAdd(value, value, sums[j]);
    }
  }
  std::array<double, kSquareLanes> lanes;
  for (std::size_t j = 0; j < kVectors; ++j) hn::StoreU(sums[j], d, lanes.data() + j * kLanes);
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
