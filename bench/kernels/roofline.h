// Roofline: what this machine can do, measured by this program when it is first asked: the
// bandwidth of a copy at a given footprint, and the peak of fused multiply-adds of one thread.
// Benchmarks state fractions of these.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "sched/base/dtype.h"

namespace sinew::bench {

// Bytes read plus bytes written per second by the fastest of three copies (memcpy, ordinary vector
// stores, non-temporal stores) between two arrays that together hold `footprint_bytes`, one thread.
// Footprints are rounded to a power of two, each measured once, best of several repetitions.
[[nodiscard]] double copy_bytes_per_second(std::int64_t footprint_bytes);

// Bytes per second of a sum over one array of `footprint_bytes`. From memory it is less than a
// copy's: a core reads and writes at the same time, each at its own rate.
[[nodiscard]] double read_bytes_per_second(std::int64_t footprint_bytes);

// Bytes per second of filling one array of `footprint_bytes`, by the fastest of memset, ordinary
// vector stores and non-temporal stores.
[[nodiscard]] double write_bytes_per_second(std::int64_t footprint_bytes);

enum class Arithmetic { kF32, kF64, kBf16Dot };

// Floating-point operations per second of independent multiply-adds in registers, one thread, with
// the widest vectors this processor has; 0 when it lacks the instruction (kBf16Dot without
// AVX512-BF16). A multiply-add counts as two.
[[nodiscard]] double peak_flops(Arithmetic arithmetic);

// The peak of the multiply-adds that a product of T's may use: the dot product of bf16 where this
// processor has it, f32's otherwise.
template <typename T>
[[nodiscard]] double gemm_peak() {
  if constexpr (std::is_same_v<T, double>) return peak_flops(Arithmetic::kF64);
  if constexpr (std::is_same_v<T, bf16>) {
    if (const double peak = peak_flops(Arithmetic::kBf16Dot); peak > 0) return peak;
  }
  return peak_flops(Arithmetic::kF32);
}

// One line: processor, caches, copy bandwidth per cache level, peaks.
[[nodiscard]] std::string describe_roofline();

}  // namespace sinew::bench
