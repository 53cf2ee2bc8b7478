// Element types of kernels: how a value lies in memory and the type its arithmetic uses.
// Activations and weights may be bf16; their arithmetic, statistics and gradient sums are f32.
#pragma once

#include <type_traits>

#include "kernels/float8.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;
template <typename T>
inline constexpr bool kIsFloat8 = std::is_same_v<T, e4m3> || std::is_same_v<T, e5m2>;

// float for the 16- and 8-bit floats, else T itself.
template <typename T>
using Wide = std::conditional_t<kIsHalf<T> || kIsFloat8<T>, float, T>;

template <typename T>
Wide<T> widen(T value) {
  if constexpr (kIsHalf<T> || kIsFloat8<T>) {
    return to_float(value);
  } else {
    return value;
  }
}

// To nearest even; 8-bit floats saturate (float8.h).
template <typename T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(value);
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(value);
  } else if constexpr (kIsFloat8<T>) {
    return to_float8<T>(value);
  } else {
    return value;
  }
}

// What an integer of this type divides in: signed or not, and wide enough for any number of ranks.
template <typename T>
using Divided =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>,
                       Wide<T>>;

}  // namespace sinew::kernels
