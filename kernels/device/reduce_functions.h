// The element-wise operations of reduce.h inside a kernel: one definition for the reduction kernels
// and for the collectives that reduce what they receive.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/gpu.h"
#include "kernels/element.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

template <typename T>
GPU_FUNCTION Wide<T> to_wide(T value) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return value;
  } else {
    return gpu::widen(value);
  }
}

template <typename T>
GPU_FUNCTION T from_wide(Wide<T> value) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return value;
  } else {
    return gpu::narrow<T>(value);
  }
}

// IEEE 754-2019 minimum and maximum: NaN if either is, -0 below +0.
template <typename W>
GPU_FUNCTION W minimum(W a, W b) {
  if constexpr (std::is_same_v<W, float>) {
    return gpu::minimum(a, b);
  } else if constexpr (std::is_floating_point_v<W>) {
    if (a != a || b != b) return a + b;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <typename W>
GPU_FUNCTION W maximum(W a, W b) {
  if constexpr (std::is_same_v<W, float>) {
    return gpu::maximum(a, b);
  } else if constexpr (std::is_floating_point_v<W>) {
    if (a != a || b != b) return a + b;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

// kAvg adds. Integers wrap: arithmetic is unsigned, in 64 bits so that no promotion makes it signed
// again.
template <ReduceOp op, typename W>
GPU_FUNCTION W combine(W a, W b) {
  if constexpr (op == ReduceOp::kMin) {
    return minimum(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return maximum(a, b);
  } else if constexpr (std::is_floating_point_v<W>) {
    if constexpr (op == ReduceOp::kProd) return a * b;
    return a + b;
  } else {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<W>(op == ReduceOp::kProd ? x * y : x + y);
  }
}

// Sixteen bytes as elements.
template <typename T>
struct Pack {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(T));
  T value[kCount];
};

template <typename T>
GPU_FUNCTION Pack<T> unpack(const gpu::Bytes16& bytes) {
  Pack<T> pack;
  __builtin_memcpy(&pack, &bytes, 16);
  return pack;
}

template <typename T>
GPU_FUNCTION gpu::Bytes16 to_bytes(const Pack<T>& pack) {
  gpu::Bytes16 bytes;
  __builtin_memcpy(&bytes, &pack, 16);
  return bytes;
}

}  // namespace sinew::kernels
