// Timing of compute-bound kernels: on one thread its own processor time, which other processes on
// the machine do not touch; on several threads the wall. Medians, since single calls are long
// enough to be interrupted.
#pragma once

#include <vector>

namespace sinew::bench {

[[nodiscard]] double seconds_now(int threads);
// Returns when no thread of this process computes any more, after some 0.3 s at the latest.
// Libraries keep their threads spinning for a while after a call, on the cores that the next one's
// threads need.
void wait_until_idle();
// The first `count` cores that this thread may use; fewer where there are fewer.
[[nodiscard]] std::vector<int> first_cores(int count);
[[nodiscard]] double median(std::vector<double> values);

}  // namespace sinew::bench
