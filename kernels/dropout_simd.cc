// The vector dropout: 64 random words at a time, drawn into a buffer, then spent.
#include "kernels/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/random_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

// body(io, i, kept) for packs of a row: kept(x) is x times factor where it is kept, else 0.
template <typename T, class Body>
HWY_INLINE void for_each_dropped(const RandomStream& random, std::uint32_t threshold, float factor,
                                 std::int64_t first, std::int64_t count, const Body& body) {
  const WordTag d;
  const auto least = hn::Set(d, threshold);
  const auto scale = hn::Set(FloatTag(), factor);
  const auto kept = [&](FloatVec x, FloatVec word) SINEW_LAMBDA {
    const auto drops = hn::Lt(hn::BitCast(d, word), least);
    return hn::IfThenZeroElse(hn::RebindMask(FloatTag(), drops), hn::Mul(x, scale));
  };
  for_each_random_piece(
      random, first, count,
      [&](std::int64_t begin, std::int64_t piece, const std::uint32_t* words) SINEW_LAMBDA {
        for_each_pack<T>(piece, [&](auto io, std::int64_t i) SINEW_LAMBDA {
          // Words travel as the bits of floats, so that they are split like the elements they
          // belong to.
          const auto word = io.load(reinterpret_cast<const float*>(words) + i);
          body(io, begin + i,
               [&](const PackOf<T>& x) SINEW_LAMBDA { return apply(kept, x, word); });
        });
      });
}

std::int64_t row_index(const DropoutShape& shape, std::int64_t r) {
  return (shape.first_row + r) * shape.global_columns + shape.first_column;
}

template <typename T>
void assign(const RandomStream& random, std::uint32_t threshold, float factor,
            const DropoutShape& shape, const T* x, T* y) {
  for (std::int64_t r = 0; r < shape.rows; ++r, x += shape.columns, y += shape.columns) {
    for_each_dropped<T>(random, threshold, factor, row_index(shape, r), shape.columns,
                        [&](auto io, std::int64_t c, auto kept)
                            SINEW_LAMBDA { io.store(kept(io.load(x + c)), y + c); });
  }
}

template <typename T>
void add(const RandomStream& random, std::uint32_t threshold, float factor,
         const DropoutShape& shape, const T* x, T* y) {
  for (std::int64_t r = 0; r < shape.rows; ++r, x += shape.columns, y += shape.columns) {
    for_each_dropped<T>(random, threshold, factor, row_index(shape, r), shape.columns,
                        [&](auto io, std::int64_t c, auto kept) SINEW_LAMBDA {
                          io.store(add_packs(io.load(y + c), kept(io.load(x + c))), y + c);
                        });
  }
}

}  // namespace

constexpr DropoutFunctions<float> kDropoutF32 = {assign<float>, add<float>};
constexpr DropoutFunctions<bf16> kDropoutBf16 = {assign<bf16>, add<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const DropoutFunctions<float>* dropout_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kDropoutF32);
}
template <>
const DropoutFunctions<bf16>* dropout_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kDropoutBf16);
}

}  // namespace sinew::kernels
#endif
