// Which fiber runs next, and how a launch ends early.
#include <sched.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "kernels/device/twin/engine.h"
#include "kernels/device/twin/state.h"

namespace sinew::twin {

constinit thread_local Thread* current = nullptr;

std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t value = (seed + 1) * 0x9E3779B97F4A7C15ULL ^ (stream + 1) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 30)) * 0x94D049BB133111EBULL;
  return value == 0 ? 1 : value;
}

void make_ready(Fiber& fiber) {
  RunQueue& queue = launch_of(fiber).queue;
  fiber.state = FiberState::kReady;
  queue.at(queue.tail++) = &fiber;
}

void make_ready_last(Fiber& fiber) {
  Launch& launch = launch_of(fiber);
  if (launch.config.order != Order::kLifo) return make_ready(fiber);
  fiber.state = FiberState::kReady;
  launch.queue.at(--launch.queue.head) = &fiber;
}

namespace {

std::atomic<bool> stopping{false};

// Now and then the warp just chosen falls or rises, so that every relative order of warps is met in
// time (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs",
// ASPLOS 2010).
void redraw_priority(Launch& launch, const Fiber& fiber) {
  if ((launch.random.next() & 255U) != 0) return;
  const std::uint32_t priority = (launch.random.next() >> 1) | (1U << 30);
  const Block& block = *fiber.block;
  const int begin = static_cast<int>(fiber.index) / kWarpLanes * kWarpLanes;
  for (int i = begin; i < begin + kWarpLanes && i < block.threads; ++i)
    block.fibers[i].priority = priority;
}

Fiber* pick_priority(Launch& launch) {
  RunQueue& queue = launch.queue;
  std::size_t best = queue.head;
  for (std::size_t i = queue.head + 1; i != queue.tail; ++i) {
    if (queue.at(i)->priority > queue.at(best)->priority) best = i;
  }
  Fiber* fiber = queue.at(best);
  queue.at(best) = queue.at(queue.head++);
  redraw_priority(launch, *fiber);
  return fiber;
}

// Undoes what stop_launches did to the fiber, which a later launch will use.
void watch_again(Fiber& fiber) {
  if (!std::exchange(fiber.watched, true)) watch_accesses(true);
}

void fail_if_stopped() {
  if (stopping.load(std::memory_order_relaxed)) fail("stopped on request");
}

void run_next() {
  fail_if_stopped();
  Fiber& from = self();
  Launch& launch = launch_of(from);
  Fiber* to = pick(launch);
  if (to == &from) return;
  current = to;
  switch_fiber(from.context, to != nullptr ? to->context : launch.main, Leaving::kForNow);
}

double now_s() {
  std::timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

const char* activity(const Fiber& fiber) {
  switch (fiber.state) {
    case FiberState::kAtWarp:
      return fiber.op->name;
    case FiberState::kAtBarrier:
      return "barrier";
    case FiberState::kReady:
      return "runnable";
    case FiberState::kDone:
      return "done";
  }
  return "";
}

}  // namespace

Fiber* pick(Launch& launch) {
  RunQueue& queue = launch.queue;
  if (queue.count() == 0) return nullptr;
  switch (launch.config.order) {
    case Order::kFifo:
      return queue.at(queue.head++);
    case Order::kLifo:
      return queue.at(--queue.tail);
    case Order::kPriority:
      return pick_priority(launch);
    case Order::kRandom: {
      const std::size_t chosen = queue.head + launch.random.below(queue.count());
      Fiber* fiber = queue.at(chosen);
      queue.at(chosen) = queue.at(queue.head++);
      return fiber;
    }
  }
  return nullptr;
}

void stop_launches(bool stop) {
  stopping.store(stop, std::memory_order_relaxed);
  if (!stop || current == nullptr || !self().watched) return;
  self().watched = false;
  watch_accesses(false);
}

void block_self() { run_next(); }

void progress(Launch& launch) { launch.idle_turns = 0; }

// Turns in vain after which a launch leaves the core to those it waits for: a receive may wait for
// as long as another rank computes. Few: where programs outnumber cores each turn gives a whole
// slice of time, milliseconds, to somebody else, while who sleeps is woken soon.
constexpr std::uint64_t kTurnsBeforeSleep = 16;

void spin_turn(const Site& site) {
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  fiber.site = site;
  if (launch.idle_turns == 0) launch.idle_since_s = now_s();
  if (++launch.idle_turns >
      launch.queue.count()) {  // all of this launch only wait: another process has the core
    if ((launch.idle_turns & 63U) == 0 &&
        now_s() - launch.idle_since_s > launch.config.spin_limit_s) {
      fail("busy waiting for more than %g s without progress", launch.config.spin_limit_s);
    }
    if (launch.idle_turns < launch.queue.count() + kTurnsBeforeSleep) {
      sched_yield();
    } else {
      constexpr timespec kSleep = {.tv_sec = 0, .tv_nsec = 50'000};
      // Not nanosleep: the race detector notes all threads' clocks at it.
      clock_nanosleep(CLOCK_MONOTONIC, 0, &kSleep, nullptr);
    }
  }
  if (launch.config.order == Order::kPriority) fiber.priority = --launch.lowest_priority;
  make_ready_last(fiber);
  run_next();
}

void preemption_point(const Site& site) {
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  if (launch.config.order != Order::kRandom && launch.config.order != Order::kPriority) return;
  if ((launch.random.next() & 7U) != 0) return;
  fiber.site = site;
  make_ready(fiber);
  run_next();
}

bool is_removed(const char* name) {
  return current->removed != nullptr && std::strcmp(current->removed, name) == 0;
}

void record_failure(Launch& launch, const char* text) {
  launch.failed = true;
  auto* out = launch.error.data();
  std::size_t left = launch.error.size();
  const auto append = [&](int written) {
    const auto used =
        static_cast<std::size_t>(written) < left ? static_cast<std::size_t>(written) : left - 1;
    out += used;
    left -= used;
  };
  append(std::snprintf(out, left, "%s", text));
  int shown = 0;
  for (int b = 0; b < launch.block_count; ++b) {
    const Block& block = *launch.blocks[b];
    if (!block.active) continue;
    for (int i = 0; i < block.threads && shown < 8; ++i) {
      const Fiber& fiber = block.fibers[i];
      if (fiber.state == FiberState::kDone) continue;
      ++shown;
      append(std::snprintf(out, left, "\n  block (%u,%u,%u) thread (%u,%u,%u): %s, %s:%u",
                           fiber.block_index.x, fiber.block_index.y, fiber.block_index.z,
                           fiber.thread_index.x, fiber.thread_index.y, fiber.thread_index.z,
                           activity(fiber), fiber.site.file, fiber.site.line));
    }
  }
}

void fail(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (current == nullptr) {
    std::fprintf(stderr, "device twin: %s (outside a kernel)\n", text);
    std::abort();
  }
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  char place[1400];
  std::snprintf(place, sizeof place, "%s [block (%u,%u,%u) thread (%u,%u,%u) near %s:%u]", text,
                fiber.block_index.x, fiber.block_index.y, fiber.block_index.z, fiber.thread_index.x,
                fiber.thread_index.y, fiber.thread_index.z, fiber.site.file, fiber.site.line);
  record_failure(launch, place);
  watch_again(fiber);
  current = nullptr;
  switch_fiber(fiber.context, launch.main, Leaving::kForNow);
  std::abort();  // a failed launch never resumes a fiber
}

void fiber_entry() {
  enter_fiber();
  Fiber& fiber = self();
  Block& block = *fiber.block;
  Launch& launch = *block.launch;
  order_acquire(&launch.start_token);
  launch.body(launch.argument);
  fail_if_stopped();
  if (!fiber.copies.empty()) fail("the thread exits with cp.async still in flight");
  if (!fiber.products.empty()) fail("the thread exits with wgmma still in flight");
  order_release(&launch.end_token);
  warp_thread_exits(fiber);
  fiber.state = FiberState::kDone;
  --block.alive;
  progress(launch);
  barrier_thread_exits(block);
  // The block's last thread hands over to the engine, which may start the next block in its place.
  Fiber* next = block.alive > 0 ? pick(launch) : nullptr;
  current = next;
  switch_fiber(fiber.context, next != nullptr ? next->context : launch.main, Leaving::kForGood);
  std::abort();
}

}  // namespace sinew::twin
