// What a TensorMap holds on the twin, and the work that hopper.cc queues.
#pragma once

#include <cstdint>

namespace sinew::twin {

struct BoxMap {
  static constexpr std::uint64_t kMark = 0x5349'4e45'5754'4d41ULL;
  std::uint64_t mark;
  const std::uint16_t* data;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t row_stride;  // elements
  std::uint32_t box_rows;
};

struct BoxLoad {
  BoxMap map;
  void* target;
  std::uint64_t* barrier;
  int column;
  int row;
};

}  // namespace sinew::twin
