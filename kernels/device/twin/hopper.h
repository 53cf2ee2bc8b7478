// The asynchronous units of sm_90 on the twin: barriers that count bytes, box copies, and products
// of a warp group from descriptors of shared memory. Internal to gpu/hopper.h.
#pragma once

#include <cstdint>

#include "kernels/device/twin/core.h"

namespace sinew::twin {

// An mbarrier in its 8 bytes of shared memory.
void mbarrier_init(std::uint64_t* barrier, unsigned arrivals);
// Before the copy unit may use a barrier that was initialised.
void mbarrier_fence_init();
// expected_bytes: added to what must be copied before the phase ends.
void mbarrier_arrive(std::uint64_t* barrier, unsigned expected_bytes, const Site& site);
// Whether the phase of that parity has ended.
[[nodiscard]] bool mbarrier_try(std::uint64_t* barrier, unsigned parity, const Site& site);

// Copies the box at (column, row) of the map into shared memory and reports its bytes to the
// barrier, at once or later (Config::async).
void box_load(void* target, const void* map, int column, int row, std::uint64_t* barrier,
              const Site& site);

// d: the calling thread's share, columns / 2 values, of a 64 x columns product with 16 summands;
// accumulate false: d = a b, else d += a b. Happens at once or when it is waited for.
struct ProductOperand {
  std::uint64_t descriptor;
  bool outer_major;  // the summed dimension is not the contiguous one
};
struct Product {
  float* d;
  ProductOperand a;
  ProductOperand b;
  bool accumulate;
  int columns;
};
void product_issue(const Product& product, const Site& site);
// Before the first product, and before the next one when sums have been waited for: the thread has
// had the registers.
void product_fence();
void product_commit();
void product_wait(int groups);

}  // namespace sinew::twin
