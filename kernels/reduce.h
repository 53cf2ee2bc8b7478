// Element-wise reductions: what collectives do with the bytes they move.
//
// Order and precision, for every dtype: one operation, one rounding. bf16 and f16 widen to f32, combine, round
// to nearest even once per call; reduce_many accumulates all sources in f32 in the order of the sources and
// rounds once. Integers wrap. min and max propagate NaN: if either operand is NaN the result is NaN. avg adds
// like sum; the division happens once, in scale.
#pragma once

#include <cstdint>
#include <span>

#include "sched/base/dtype.h"

namespace sinew::kernels {

// target[i] = left[i] (+) right[i], i < count. target may be left or right; no other overlap.
void reduce(ReduceOp op, DType dtype, void* target, const void* left, const void* right, std::int64_t count);

// target[i] = sources[0][i] (+) sources[1][i] (+) ..., left to right; reads each source once. target may be any
// one of the sources. At least one source.
void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources, std::int64_t count);

// data[i] = data[i] / divisor: floats divide and round once; integers divide toward zero. Ends ReduceOp::kAvg.
void scale(DType dtype, void* data, std::int64_t count, std::int64_t divisor);

// Non-temporal copy for outputs larger than the cache; plain memcpy below `kStreamBytes`.
void copy(void* target, const void* source, std::int64_t size_bytes);

}  // namespace sinew::kernels
