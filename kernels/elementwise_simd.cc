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
  constexpr int kGroup = 4;
  std::int64_t r = 0;
  for (; r + kGroup <= rows; r += kGroup) {
    add_rows<kGroup>(d_y + r * channels + begin, d_bias + begin, channels, end - begin);
  }
  for (; r < rows; ++r)
    add_rows<1>(d_y + r * channels + begin, d_bias + begin, channels, end - begin);
}

template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const bf16* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
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
      const auto value =
          hn::PromoteTo(d, load_floats(d_float, data + i + static_cast<std::int64_t>(j * kLanes)));
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
