// Threads: how many threads a kernel may use, and the pool they come from. A value that is passed,
// never a global: two ranks in one process, or two tests, do not share a pool by accident.
//
// Rules for kernels: the work is cut into contiguous parts, the order of floating-point operations
// per result does not depend on the cut, so every thread count gives the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "sched/base/partition.h"

namespace sinew::kernels {

// Helpers that run one task at a time and sleep when none has come for some 30 us. run() may be
// called from any thread; a call that finds the pool at work (nested, or from another thread) does
// its parts itself, in order. Destruction joins the helpers.
class ThreadPool {
 public:
  // `count` threads in all: the caller and count - 1 helpers. cores: empty, or one for each thread,
  // the helpers then stay on theirs and leave the caller its own. Without, a system may wake a
  // helper on the core of its caller, where it waits for it (seen on virtual machines: two threads
  // as slow as one). Pools of several processes must be given different cores.
  explicit ThreadPool(int count, std::vector<int> cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int count() const;
  // Calls task(context, part) once for each part in [0, parts); returns when all have returned. The
  // task must not throw. Everything written by the task is visible to the caller afterwards.
  void run(int parts, void (*task)(void* context, int part), void* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Accelerator;

struct Threads {
  int count = 1;
  // null: with count > 1 the threads are started and joined within the call (tens of microseconds).
  ThreadPool* pool = nullptr;
  // Not null: the arrays are the accelerator's (accelerator.h), which does the work. Functions it
  // does not have refuse it.
  Accelerator* accelerator = nullptr;
};

// As ThreadPool::run, with threads from wherever `threads` says.
void run_parts(Threads threads, int parts, void (*task)(void* context, int part), void* context);

// Calls body(begin, end) on contiguous, disjoint ranges that cover [0, count), at most
// threads.count of them and none shorter than `grain` (the least work that is worth a thread),
// unless count itself is.
template <typename Body>
void parallel_for(Threads threads, std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  const std::int64_t useful = grain > 0 ? count / grain : count;
  const auto parts = static_cast<int>(threads.count < useful ? threads.count : useful);
  if (parts <= 1) {
    body(std::int64_t{0}, count);
    return;
  }
  struct Context {
    std::remove_reference_t<Body>* body;
    std::int64_t count;
    int parts;
  } context{&body, count, parts};
  run_parts(
      threads, parts,
      [](void* raw, int index) {
        auto& c = *static_cast<Context*>(raw);
        const Part part = partition(c.count, c.parts, index);
        (*c.body)(part.offset, part.offset + part.count);
      },
      &context);
}

}  // namespace sinew::kernels
