// Hops: the distances over which everything travels that counts ranks in a radix.
#pragma once

#include <vector>

namespace sinew::sched {

// A digit d > 0 at a weight w = 1, r, r^2, ...: d w ranks away.
struct Hop {
  int weight;
  int digit;
  [[nodiscard]] int distance() const { return weight * digit; }
};

// All that are shorter than the world, by weight, then digit.
[[nodiscard]] inline std::vector<Hop> hops_of(int world, int radix) {
  std::vector<Hop> hops;
  for (int weight = 1; weight < world; weight *= radix) {
    for (int digit = 1; digit < radix && digit * weight < world; ++digit)
      hops.push_back({weight, digit});
  }
  return hops;
}

}  // namespace sinew::sched
