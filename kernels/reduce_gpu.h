// The reductions of reduce.h on device memory. Same order, same rounding, same bits (NaN payloads
// aside).
//
// Work is queued on the stream; pointers are device memory, mapped peer memory included, and need
// the element's alignment only (16-byte alignment of all of them is the fast case). Cost: (sources
// + 1) * count elements moved.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/runtime.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

constexpr int kReduceSourcesMax = 128;

// target[i] = left[i] (+) right[i]. target may be left or right; no other overlap.
void reduce(ReduceOp op, DType dtype, void* target, const void* left, const void* right,
            std::int64_t count, device::Stream& stream);

// target[i] = sources[0][i] (+) sources[1][i] (+) ..., left to right. target may be any one of the
// sources, of which there are 1 to kReduceSourcesMax.
void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources,
                 std::int64_t count, device::Stream& stream);

// data[i] = data[i] / divisor, divisor >= 1.
void scale(DType dtype, void* data, std::int64_t count, std::int64_t divisor,
           device::Stream& stream);

}  // namespace sinew::kernels
