#include "kernels/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "sched/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sinew::kernels {
namespace {

// Both sides look for each other this long before they sleep: some 30 us, what waking a sleeper
// costs. The kernels of a step follow each other faster.
constexpr int kSpins = 1000;

template <typename Condition>
void spin_until(const Condition& condition) {
  for (int i = 0; i < kSpins && !condition(); ++i) {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
}

// A core that the thread may not use leaves it where it is: the place is a matter of speed alone.
void pin(std::thread& thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

// One task is published under the mutex with a new generation number; helpers take parts from a
// shared counter until none is left. The caller leaves only when every helper that joined the
// generation has left it, so no helper can take a part of the next task with the pointers of this
// one. generation, stopping and inside change under the mutex only; they are atomic to be looked at
// without it.
struct ThreadPool::State {
  std::mutex busy;  // held by the one run() that has the helpers
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable done;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<bool> stopping{false};
  int parts = 0;
  void (*task)(void*, int) = nullptr;
  void* context = nullptr;
  std::atomic<int> inside{0};  // helpers that work on the current generation
  std::atomic<int> next{0};
  std::vector<std::thread> helpers;
  std::vector<int> cores;  // [0]: where the caller may be; [i]: where helper i - 1 is

  // A caller that has moved to a helper's core changes places with it.
  void leave_core_to_caller() {
    if (cores.empty()) return;
    const auto helper = std::find(cores.begin() + 1, cores.end(), sched_getcpu());
    if (helper == cores.end()) return;
    std::swap(*helper, cores.front());
    pin(helpers[static_cast<std::size_t>(helper - cores.begin() - 1)], *helper);
  }

  void take_parts() {
    for (;;) {
      const int part = next.fetch_add(1, std::memory_order_relaxed);
      if (part >= parts) return;
      task(context, part);
    }
  }

  void help() {
    std::uint64_t seen = 0;
    const auto called = [&] { return stopping || generation != seen; };
    for (;;) {
      spin_until(called);
      std::unique_lock<std::mutex> lock(mutex);
      start.wait(lock, called);
      if (stopping) return;
      seen = generation;
      if (next.load(std::memory_order_relaxed) >= parts) continue;  // woke after the work was gone
      ++inside;
      lock.unlock();
      take_parts();
      lock.lock();
      if (--inside == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int count, std::vector<int> cores) : state_(std::make_unique<State>()) {
  CHECK_GE(count, 1);
  CHECK(cores.empty() || static_cast<int>(cores.size()) == count);
  for (const int core : cores) CHECK(core >= 0 && core < CPU_SETSIZE);
  state_->cores = std::move(cores);
  for (int i = 1; i < count; ++i) {
    state_->helpers.emplace_back([state = state_.get()] { state->help(); });
    if (!state_->cores.empty())
      pin(state_->helpers.back(), state_->cores[static_cast<std::size_t>(i)]);
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
  }
  state_->start.notify_all();
  for (std::thread& helper : state_->helpers) helper.join();
}

int ThreadPool::count() const { return static_cast<int>(state_->helpers.size()) + 1; }

void ThreadPool::run(int parts, void (*task)(void* context, int part), void* context) {
  State& s = *state_;
  const std::unique_lock<std::mutex> own(s.busy, std::try_to_lock);
  if (!own.owns_lock() || parts <= 1 || s.helpers.empty()) {
    for (int part = 0; part < parts; ++part) task(context, part);
    return;
  }
  s.leave_core_to_caller();
  {
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.parts = parts;
    s.task = task;
    s.context = context;
    s.next.store(0, std::memory_order_relaxed);
    ++s.generation;
  }
  s.start.notify_all();
  s.take_parts();
  const auto left = [&] { return s.inside == 0; };
  spin_until(left);
  std::unique_lock<std::mutex> lock(s.mutex);
  s.done.wait(lock, left);
}

void run_parts(Threads threads, int parts, void (*task)(void* context, int part), void* context) {
  if (threads.pool != nullptr) {
    threads.pool->run(parts, task, context);
    return;
  }
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(parts));
  for (int part = 1; part < parts; ++part) helpers.emplace_back(task, context, part);
  if (parts > 0) task(context, 0);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace sinew::kernels
