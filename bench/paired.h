// Paired: what a ratio of two times is worth that were measured in turn, many times. Says the
// median ratio and an interval that holds the true median with a probability of at least 95 %,
// whatever the distribution is like (the sign test): two order statistics, as far out as the
// binomial distribution asks for.
//
// Never does: measure. Threads: any.
#pragma once

#include <vector>

namespace sinew::bench {

struct PairedRatio {
  double median = 0;
  double low = 0;
  double high = 0;
};

// How many of `count` sorted samples lie outside the interval on either side: the most that leaves
// 95 %. -1: so few samples that even all of them do not make it.
[[nodiscard]] int samples_outside(int count);
// At least six ratios; sorts them.
[[nodiscard]] PairedRatio paired_ratio(std::vector<double>& ratios);

}  // namespace sinew::bench
