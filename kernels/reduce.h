// Element-wise reductions: what collectives do with the bytes they move.
//
// Order and precision, for every dtype: one operation, one rounding. bf16, f16, e4m3 and
// e5m2 widen to f32, combine, round to nearest even once per call; reduce_many accumulates all
// sources in f32 in the order of the sources and rounds once. What 8-bit floats round to saturates
// (float8.h), the infinities of e5m2 too. Integers wrap. min and max are IEEE 754-2019 minimum and
// maximum: if either operand is NaN the result is NaN, and -0 is less than +0, so that both
// commute. Which NaN is not stated. avg adds like sum; the division happens once, in scale.
// Pointers need the element's natural alignment only. Every version gives the same bits (NaN
// payloads aside), and so does every split of the elements into calls.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/streaming.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// target[i] = left[i] (+) right[i], i < count. target may be left or right; no other overlap.
void reduce(ReduceOp op, DType dtype, void* target, const void* left, const void* right,
            std::int64_t count);

// target[i] = sources[0][i] (+) sources[1][i] (+) ..., left to right; reads each source once.
// target may be any one of the sources. At least one source.
void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources,
                 std::int64_t count);

// Past the cache also what fits it, as one of the pieces that together do not: it saves reading the
// target's lines, which a target that is a source has read.
void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources,
                 std::int64_t count, Stores stores);

// The same into each target, past the cache: memory is read while it is written. Each may be one of
// the sources; no other overlap. Their addresses agree modulo 64. At least one.
void reduce_many_to(ReduceOp op, DType dtype, std::span<void* const> targets,
                    std::span<const void* const> sources, std::int64_t count);

// data[i] = data[i] / divisor, divisor >= 1: floats divide and round once; integers divide toward
// zero. Ends ReduceOp::kAvg.
void scale(DType dtype, void* data, std::int64_t count, std::int64_t divisor);

// Copies size_bytes >= 0; no overlap, no alignment needed, null pointers for nothing. This is how
// collectives move bytes: the C library's memcpy may be `rep movsb` from some 2 KiB on, which on a
// processor of the Zen 3 kind takes 16 to 40 times as long where the target lies 1 to 63 bytes
// behind the source modulo 4096 (1.7 to 3 GB/s; 40 to 70 by vectors). Past the cache also what fits
// it, as one of the pieces that together do not.
void copy(void* target, const void* source, std::int64_t size_bytes, Stores stores);

// The same, past the cache when source and target together do not fit it.
void copy(void* target, const void* source, std::int64_t size_bytes);

// What one version provides, indexed by dtype and operation.
struct ReduceFunctions {
  static constexpr std::string_view kOperation = "reduce";
  using Element = void;
  using Binary = void (*)(void* target, const void* left, const void* right, std::int64_t count);
  using Many = void (*)(void* target, std::span<const void* const> sources, std::int64_t count);
  using ManyTo = void (*)(std::span<void* const> targets, std::span<const void* const> sources,
                          std::int64_t count);
  using Scale = void (*)(void* data, std::int64_t count, std::int64_t divisor);
  Binary binary[kDTypes.size()][kReduceOps.size()];
  Many many[kDTypes.size()][kReduceOps.size()];
  ManyTo many_to[kDTypes.size()][kReduceOps.size()];
  Scale scale[kDTypes.size()];
  using Copy = void (*)(void* target, const void* source, std::int64_t size_bytes);
  Copy copy[2];  // by Stores
};

[[nodiscard]] const ReduceFunctions& reduce_plain();
// Null where this build has no code for `isa`.
[[nodiscard]] const ReduceFunctions* reduce_simd(Isa isa);
// The vector version with faster reductions of 8-bit floats, for AVX512-BF16 only.
[[nodiscard]] const ReduceFunctions* reduce_float8(Isa isa);

}  // namespace sinew::kernels
