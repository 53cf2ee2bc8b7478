// Element types of kernels: how a value lies in memory and the type its arithmetic uses.
// Activations and weights may be bf16; their arithmetic, statistics and gradient sums are f32.
#pragma once

#include <type_traits>

#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;

// float for the 16-bit floats, else T itself.
template <typename T>
using Wide = std::conditional_t<kIsHalf<T>, float, T>;

template <typename T>
Wide<T> widen(T value) {
  if constexpr (kIsHalf<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

// To nearest even.
template <typename T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value);
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(value);
  } else {
    return value;
  }
}

}  // namespace sinew::kernels
