// The meeting of a warp's lanes. Every warp-level operation is a WarpOp that says how results
// follow from the arguments of all lanes.
#include "kernels/device/twin/state.h"

namespace sinew::twin {

namespace {

WarpGroup& group_of(Warp& warp, std::uint32_t mask, const WarpOp& op) {
  for (int i = 0; i < warp.groups; ++i) {
    WarpGroup& group = warp.group[static_cast<std::size_t>(i)];
    if (group.mask == mask && group.op == &op) return group;
  }
  WarpGroup& group = warp.group[static_cast<std::size_t>(warp.groups++)];
  group = WarpGroup{mask, 0, &op};
  return group;
}

void complete(Fiber& last, Warp& warp, WarpGroup& group, const WarpOp& op) {
  const std::uint32_t mask = group.mask;
  group = warp.group[static_cast<std::size_t>(--warp.groups)];
  Fiber* lanes = last.block->fibers + last.index / kWarpLanes * kWarpLanes;
  void* arguments[kWarpLanes] = {};
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    arguments[lane] = lanes[lane].argument;
    if (op.orders_memory) order_acquire(&lanes[lane].arrive_token);
  }
  if (op.compute != nullptr) op.compute(mask, arguments);
  progress(launch_of(last));
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    if ((mask >> lane & 1U) == 0) continue;
    if (op.orders_memory) order_release(&lanes[lane].resume_token);
    if (&lanes[lane] != &last) make_ready(lanes[lane]);
  }
}

}  // namespace

unsigned lane_index() { return self().index % kWarpLanes; }

void warp_rendezvous(std::uint32_t mask, const WarpOp& op, void* argument, const Site& site) {
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  Warp& warp = fiber.block->warps[fiber.index / kWarpLanes];
  const unsigned lane = fiber.index % kWarpLanes;
  fiber.site = site;
  fiber.mask = mask;
  fiber.op = &op;
  fiber.argument = argument;
  if ((mask >> lane & 1U) == 0)
    fail("%s: the calling lane %u is not in mask %08x", op.name, lane, mask);
  if ((mask & warp.exited) != 0)
    fail("%s: mask %08x names exited lanes %08x", op.name, mask, mask & warp.exited);
  WarpGroup& group = group_of(warp, mask, op);
  group.arrived |= 1U << lane;
  if (op.orders_memory) order_release(&fiber.arrive_token);
  if (group.arrived == mask) {
    complete(fiber, warp, group, op);
    if (launch.config.order == Order::kRandom && launch.random.coin()) {
      make_ready(fiber);
      block_self();
    }
  } else {
    fiber.state = FiberState::kAtWarp;
    block_self();
  }
  if (op.orders_memory) order_acquire(&fiber.resume_token);
}

void warp_thread_exits(Fiber& fiber) {
  Warp& warp = fiber.block->warps[fiber.index / kWarpLanes];
  const unsigned lane = fiber.index % kWarpLanes;
  warp.exited |= 1U << lane;
  for (int i = 0; i < warp.groups; ++i) {
    const WarpGroup& group = warp.group[static_cast<std::size_t>(i)];
    if ((group.mask >> lane & 1U) != 0)
      fail("lane %u exits while others of its mask wait in %s", lane, group.op->name);
  }
}

}  // namespace sinew::twin
