#include "bench/paired.h"

#include <algorithm>
#include <cmath>

#include "sched/base/check.h"

namespace sinew::bench {

int samples_outside(int count) {
  // The median lies below the k-th smallest of n samples when fewer than k of them are below it:
  // sum over i < k of C(n, i) / 2^n, and as likely above its counterpart.
  double below = 0;
  double term = std::exp2(-count);
  int outside = -1;
  for (int i = 0; 2 * (i + 1) <= count; ++i) {
    below += term;
    if (2 * below > 0.05) break;
    outside = i;
    term *= static_cast<double>(count - i) / (i + 1);
  }
  return outside;
}

PairedRatio paired_ratio(std::vector<double>& ratios) {
  const auto count = static_cast<int>(ratios.size());
  const int outside = samples_outside(count);
  CHECK_GE(outside, 0);
  std::sort(ratios.begin(), ratios.end());
  const auto at = [&](int i) { return ratios[static_cast<std::size_t>(i)]; };
  return {.median = (at((count - 1) / 2) + at(count / 2)) / 2,
          .low = at(outside),
          .high = at(count - 1 - outside)};
}

}  // namespace sinew::bench
