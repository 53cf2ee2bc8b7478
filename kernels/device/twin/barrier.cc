// The block's barriers: bar.sync and bar.arrive.
#include "kernels/device/twin/state.h"

namespace sinew::twin {

namespace {

// All that arrive are ordered before all that leave. Two tokens suffice: who has not left a phase
// has not arrived in the next, so that no token is used again before all have acquired it.
char* token_of(Barrier& barrier) { return &barrier.tokens[barrier.phase]; }

void complete(Launch& launch, Barrier& barrier, const Fiber* last) {
  const int votes = barrier.votes;
  Fiber* waiting = barrier.head;
  barrier = Barrier{.phase = barrier.phase ^ 1};
  progress(launch);
  while (waiting != nullptr) {
    Fiber* next = waiting->next_waiting;
    waiting->barrier_result = votes;
    if (waiting != last) make_ready(*waiting);
    waiting = next;
  }
}

void check_same_barrier(const Barrier& barrier, int id, int threads, const Site& site) {
  if (barrier.arrived == 0) return;
  if (barrier.expected != threads)
    fail("barrier %d: thread counts differ (%d and %d)", id, barrier.expected, threads);
  if (id == 0 && barrier.head != nullptr && barrier.head->site.line != site.line) {
    fail("divergent barrier: __syncthreads of line %u meets the one of line %u", site.line,
         barrier.head->site.line);
  }
}

bool arrive(Barrier& barrier, int id, int threads, bool predicate, const Site& site) {
  Fiber& fiber = self();
  if (id < 0 || id >= kBarriers)
    fail("barrier %d: a block has barriers 0 to %d", id, kBarriers - 1);
  if (threads % kWarpLanes != 0) fail("barrier %d: %d threads, not a multiple of 32", id, threads);
  check_same_barrier(barrier, id, threads, site);
  fiber.site = site;
  barrier.expected = threads;
  barrier.votes += predicate ? 1 : 0;
  ++barrier.arrived;
  order_release(token_of(barrier));
  return barrier.arrived == (threads != 0 ? threads : fiber.block->alive);
}

}  // namespace

int block_barrier(int id, int threads, bool predicate, const Site& site) {
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  Barrier& barrier = fiber.block->barriers[static_cast<std::size_t>(id) % kBarriers];
  char* const token = token_of(barrier);
  const bool last = arrive(barrier, id, threads, predicate, site);
  fiber.next_waiting = nullptr;
  (barrier.tail != nullptr ? barrier.tail->next_waiting : barrier.head) = &fiber;
  barrier.tail = &fiber;
  ++barrier.waiting;
  if (last) {
    complete(launch, barrier, &fiber);
    // The last to arrive may also be the last to leave.
    if (launch.config.order == Order::kRandom && launch.random.coin()) {
      make_ready(fiber);
      block_self();
    }
  } else {
    fiber.state = FiberState::kAtBarrier;
    block_self();
  }
  order_acquire(token);
  return fiber.barrier_result;
}

void block_arrive(int id, int threads, const Site& site) {
  Fiber& fiber = self();
  Barrier& barrier = fiber.block->barriers[static_cast<std::size_t>(id) % kBarriers];
  if (arrive(barrier, id, threads, false, site)) complete(launch_of(fiber), barrier, nullptr);
}

void barrier_thread_exits(Block& block) {
  for (Barrier& barrier : block.barriers) {
    if (barrier.waiting > 0 && barrier.expected == 0 && barrier.arrived == block.alive) {
      order_release(token_of(barrier));
      complete(*block.launch, barrier, nullptr);
    }
  }
}

}  // namespace sinew::twin
