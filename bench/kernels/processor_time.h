// Timing of compute-bound kernels: on one thread its own processor time, which other processes on
// the machine do not touch; on several threads the wall. Medians, since single calls are long
// enough to be interrupted.
#pragma once

#include <vector>

namespace sinew::bench {

[[nodiscard]] double seconds_now(int threads);
[[nodiscard]] double median(std::vector<double> values);

}  // namespace sinew::bench
