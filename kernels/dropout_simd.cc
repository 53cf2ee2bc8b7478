// The vector dropout: the bits of 128 elements at a time, drawn into a buffer, then spent.
#include "kernels/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/random_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

// Calls body(io, i, kept) for the packs of a row: kept(x) is x times factor where it is kept, else
// 0. past_cache: the stores of body bypass the cache.
template <typename T, bool past_cache, class Body>
HWY_INLINE void for_each_dropped(const RandomStream& random, std::uint32_t threshold, float factor,
                                 std::int64_t first, std::int64_t count, const Body& body) {
  const WordTag d;
  const auto least = hn::Set(d, threshold);
  const auto scale = hn::Set(FloatTag(), factor);
  for_each_random_piece(
      random, first, count,
      [&](std::int64_t begin, std::int64_t piece, const std::uint16_t* bits) SINEW_LAMBDA {
        const auto pack = [&](auto io, std::int64_t i) SINEW_LAMBDA {
          const auto drawn = load_bits<T>(bits + i);
          body(io, begin + i, [&](PackOf<T> x) SINEW_LAMBDA {
            for_rows<static_cast<int>(kPackVectors<T>)>([&](auto k) SINEW_LAMBDA {
              const auto drops = hn::RebindMask(FloatTag(), hn::Lt(drawn.v[k], least));
              x.v[k] = hn::IfThenZeroElse(drops, hn::Mul(x.v[k], scale));
            });
            return x;
          });
        };
        if constexpr (past_cache) {
          // Not paced: while bits are drawn, memory catches up.
          for_each_pack<T>(
              piece, [&](auto io, std::int64_t i) SINEW_LAMBDA { pack(past_the_cache(io), i); });
        } else {
          for_each_pack<T>(piece, pack);
        }
      });
}

std::int64_t row_index(const DropoutShape& shape, std::int64_t r) {
  return (shape.first_row + r) * shape.global_columns + shape.first_column;
}

// Whether rows of y should bypass the cache and every pack of a piece is aligned.
template <typename T>
bool bypasses(const DropoutShape& shape, const T* x, const T* y) {
  return x != y && rows_bypass_cache(y, shape.rows, shape.columns, 1) &&
         shape.first_column % kPackElements<T> == 0 && shape.global_columns % kPackElements<T> == 0;
}

template <typename T, bool past_cache>
HWY_INLINE void assign_rows(const RandomStream& random, std::uint32_t threshold, float factor,
                            const DropoutShape& shape, const T* x, T* y) {
  for (std::int64_t r = 0; r < shape.rows; ++r, x += shape.columns, y += shape.columns) {
    for_each_dropped<T, past_cache>(random, threshold, factor, row_index(shape, r), shape.columns,
                                    [&](auto io, std::int64_t c, auto kept)
                                        SINEW_LAMBDA { io.store(kept(io.load(x + c)), y + c); });
  }
}

template <typename T>
void assign(const RandomStream& random, std::uint32_t threshold, float factor,
            const DropoutShape& shape, const T* x, T* y) {
  if (!bypasses(shape, x, y)) return assign_rows<T, false>(random, threshold, factor, shape, x, y);
  assign_rows<T, true>(random, threshold, factor, shape, x, y);
  hwy::FlushStream();
}

template <typename T>
void add(const RandomStream& random, std::uint32_t threshold, float factor,
         const DropoutShape& shape, const T* x, T* y) {
  for (std::int64_t r = 0; r < shape.rows; ++r, x += shape.columns, y += shape.columns) {
    for_each_dropped<T, false>(random, threshold, factor, row_index(shape, r), shape.columns,
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
