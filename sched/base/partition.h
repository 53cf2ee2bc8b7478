// partition: how a count of elements is cut into chunks. The one definition every layer uses, so
// that chunk numbers can stay symbolic until the executor turns them into offsets.
#pragma once

#include <cstdint>

#include "sched/base/check.h"

namespace sinew {

struct Part {
  std::int64_t offset;
  std::int64_t count;
};

// Part `index` of `count` elements cut into `parts` contiguous parts that differ by at most one
// element, larger ones first. Any count including 0. Offsets of part i+1 and the end of part i
// agree.
constexpr Part partition(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t quotient = count / parts;
  const std::int64_t remainder = count % parts;
  const std::int64_t before = index < remainder ? index : remainder;
  return {index * quotient + before, quotient + (index < remainder ? 1 : 0)};
}

// For value >= 0 and a positive divisor or unit.
constexpr std::int64_t ceil_divide(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return ceil_divide(value, unit) * unit;
}

// The mathematical modulus: always in [0, modulus).
constexpr int mod(int value, int modulus) {
  const int remainder = value % modulus;
  return remainder < 0 ? remainder + modulus : remainder;
}

// Smallest r with 2^r >= value, for value >= 1.
constexpr int ceil_log2(std::int64_t value) {
  int result = 0;
  while ((std::int64_t{1} << result) < value) ++result;
  return result;
}

// Largest r with 2^r <= value, for value >= 1.
constexpr int floor_log2(std::int64_t value) {
  int result = 0;
  while ((std::int64_t{2} << result) <= value) ++result;
  return result;
}

constexpr bool is_power_of_two(std::int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

}  // namespace sinew
