// A few neighbouring elements as f32: one wide access where the address allows it.
#pragma once

#include <cstdint>

#include "kernels/device/gpu/number.h"

namespace sinew::gpu {

// Elements of T in 16 bytes: the widest access.
template <typename T>
constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

template <typename T, int kWidth>
struct [[gnu::may_alias]] alignas(kWidth * sizeof(T) > 16 ? 16 : kWidth * sizeof(T)) Chunk {
  T element[kWidth];
};

template <int kWidth>
struct Values {
  float v[kWidth];
};

// p is a multiple of the chunk's alignment.
template <int kWidth, typename T>
GPU_FUNCTION Values<kWidth> load_values(const T* p) {
  const auto chunk = *reinterpret_cast<const Chunk<T, kWidth>*>(p);
  Values<kWidth> values;
  UNROLL for (int i = 0; i < kWidth; ++i) values.v[i] = widen(chunk.element[i]);
  return values;
}

template <typename T, int kWidth>
GPU_FUNCTION void store_values(T* p, const Values<kWidth>& values) {
  Chunk<T, kWidth> chunk;
  UNROLL for (int i = 0; i < kWidth; ++i) chunk.element[i] = narrow<T>(values.v[i]);
  *reinterpret_cast<Chunk<T, kWidth>*>(p) = chunk;
}

}  // namespace sinew::gpu
