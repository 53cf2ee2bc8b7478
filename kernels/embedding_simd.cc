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

using Float = hn::ScalableTag<float>;

template <typename T>
void forward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* table,
             const T* positions, T* y, std::int64_t first_token, std::int64_t last_token) {
  const Float d;
  const std::int64_t channels = shape.channels;
  for (std::int64_t i = first_token; i < last_token; ++i) {
    const std::int64_t row = tokens[i] - shape.first_row;
    const T* source = row >= 0 && row < shape.rows ? table + row * channels : nullptr;
    const T* position = positions != nullptr ? positions + (i % shape.time) * channels : nullptr;
    T* target = y + i * channels;
    if (source != nullptr && position != nullptr) {
      for_each_vector(d, channels, [&](auto io, std::int64_t c) HWY_ATTR {
        io.store(hn::Add(io.load(d, source + c), io.load(d, position + c)), d, target + c);
      });
    } else if (const T* only = source != nullptr ? source : position; only != nullptr) {
      std::memcpy(target, only, static_cast<std::size_t>(channels) * sizeof(T));
    } else {
      std::memset(target, 0, static_cast<std::size_t>(channels) * sizeof(T));
    }
  }
}

template <typename T>
void backward(const EmbeddingShape& shape, const std::int32_t* tokens, const T* d_y, float* d_table,
              float* d_positions, std::int64_t begin, std::int64_t end) {
  const Float d;
  const std::int64_t channels = shape.channels;
  const auto add_row = [&](float* target, const T* source) HWY_ATTR {
    for_each_vector(d, end - begin, [&](auto io, std::int64_t c) HWY_ATTR {
      io.store(hn::Add(io.load(d, target + c), io.load(d, source + c)), d, target + c);
    });
  };
  for (std::int64_t i = 0; i < shape.batch * shape.time; ++i) {
    const std::int64_t row = tokens[i] - shape.first_row;
    const T* source = d_y + i * channels + begin;
    if (row >= 0 && row < shape.rows) add_row(d_table + row * channels + begin, source);
    if (d_positions != nullptr) {
      add_row(d_positions + (i % shape.time) * channels + begin, source);
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
