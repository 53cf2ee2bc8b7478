// The vector embedding lookup and scatter-add: rows are copied or added whole, tokens in increasing
// order.
#include "kernels/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

// The rows of a table come in an order the hardware does not foresee: each is fetched into the
// second level three rows before its turn. 8192 rows of 768 from memory on a core of the Zen 3
// kind, ms at best of lookup and of scatter-add: f32 2.05 and 2.48 two rows before, 1.93 and 2.31
// three, 1.96 and 2.37 four; bf16 0.98 and 3.5, 0.87 and 3.3, 0.94 and 3.8. `pack`: the elements
// worked on at a time, one line or more of the row.
constexpr std::int64_t kRowsAhead = 3;

template <std::int64_t pack, typename T>
HWY_INLINE void prefetch_at(const T* row, std::int64_t c) {
  constexpr std::int64_t kLineElements = 64 / sizeof(T);
  if (row == nullptr) return;
  for (std::int64_t i = 0; i < pack; i += kLineElements) fetch_second_level(row + c + i);
}

template <typename T>
const T* row_of(const EmbeddingShape& shape, const T* table, std::int32_t token) {
  const std::int64_t row = token - shape.first_row;
  return row >= 0 && row < shape.rows ? table + row * shape.channels : nullptr;
}

// target = a + b, either may be null for zeros.
template <typename T, class Io>
HWY_INLINE void embed(Io io, const T* a, const T* b, T* target, std::int64_t c) {
  auto value = same_in_all<T>(0.0F);
  if (a != nullptr) value = io.load(a + c);
  if (b != nullptr) value = add_packs(value, io.load(b + c));
  io.store(value, target + c);
}

template <typename T>
void forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
             const T* positions, T* y, std::int64_t first_token, std::int64_t last_token) {
  const std::int64_t channels = shape.channels;
  const bool past_cache =
      rows_bypass_cache(y + first_token * channels, last_token - first_token, channels, 1);
  for (std::int64_t i = first_token; i < last_token; ++i) {
    const T* source = row_of(shape, table, tokens[i]);
    const T* next =
        i + kRowsAhead < last_token ? row_of(shape, table, tokens[i + kRowsAhead]) : nullptr;
    const T* position = positions != nullptr ? positions + (i % shape.time) * channels : nullptr;
    const auto body = [&](auto io, std::int64_t c) SINEW_LAMBDA {
      prefetch_at<kPackElements<T>>(next, c);
      embed(io, source, position, y + i * channels, c);
    };
    if (past_cache) {
      for_each_pack_past_cache<T>(channels, body);
    } else {
      for_each_pack<T>(channels, body);
    }
  }
  if (past_cache) hwy::FlushStream();
}

template <typename T>
HWY_INLINE void add_row(float* target, const T* source, const float* next, std::int64_t count) {
  for_each_pack<T>(count, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    prefetch_at<kPackElements<T>>(next, c);
    io.store(add_packs(io.load(target + c), io.load(source + c)), target + c);
  });
}

template <typename T>
void backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y, float* d_table,
              float* d_positions, std::int64_t begin, std::int64_t end) {
  const std::int64_t count = shape.batch * shape.time;
  for (std::int64_t i = 0; i < count; ++i) {
    const T* source = d_y + i * shape.channels + begin;
    float* row = const_cast<float*>(row_of<float>(shape, d_table, tokens[i]));
    const float* next =
        i + kRowsAhead < count ? row_of<float>(shape, d_table, tokens[i + kRowsAhead]) : nullptr;
    if (next != nullptr) next += begin;
    if (row != nullptr) add_row(row + begin, source, next, end - begin);
    if (d_positions != nullptr) {
      float* position = d_positions + (i % shape.time) * shape.channels + begin;
      add_row<T>(position, source, nullptr, end - begin);
    }
  }
}

}  // namespace

constexpr EmbeddingFunctions<float> kEmbeddingF32 = {forward<float>, backward<float>};
constexpr EmbeddingFunctions<bf16> kEmbeddingBf16 = {forward<bf16>, backward<bf16>};

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

template <>
const EmbeddingFunctions<float>* embedding_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kEmbeddingF32);
}
template <>
const EmbeddingFunctions<bf16>* embedding_simd(Isa isa) {
  return SINEW_SIMD_VERSION(isa, kEmbeddingBf16);
}

}  // namespace sinew::kernels
#endif
