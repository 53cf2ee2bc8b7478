// cp.async: when a copy happens, between its issue and the wait that demands it.
#include "kernels/device/twin/state.h"

namespace sinew::twin {

bool async_copy_issue(const AsyncCopy& copy, const Site& site) {
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  fiber.site = site;
  const auto bits =
      reinterpret_cast<std::uintptr_t>(copy.target) | reinterpret_cast<std::uintptr_t>(copy.source);
  if (bits % static_cast<std::uintptr_t>(copy.size_bytes) != 0) {
    fail("cp.async of %d bytes: misaligned target or source", copy.size_bytes);
  }
  static_cast<void>(shared_address(copy.target));
  const Async mode = launch.config.async;
  if (mode == Async::kEager || (mode == Async::kRandom && launch.random.coin())) return true;
  if (fiber.copies.full()) fail("more than 256 cp.async in flight in one thread");
  fiber.copies.push(copy);
  return false;
}

void async_copy_commit() {
  if (!self().copies.commit()) fail("more than 32 cp.async groups in flight in one thread");
}

const AsyncCopy* async_copy_next(int groups) { return self().copies.next(groups); }

}  // namespace sinew::twin
