#include "kernels/threads.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "sched/base/check.h"

namespace sinew::kernels {

// One task is published under the mutex with a new generation number; helpers take parts from a
// shared counter until none is left. The caller leaves only when every helper that joined the
// generation has left it, so no helper can take a part of the next task with the pointers of this
// one.
struct ThreadPool::State {
  std::mutex busy;  // held by the one run() that has the helpers
  std::mutex mutex;
  std::condition_variable start;
  std::condition_variable done;
  std::uint64_t generation = 0;
  bool stopping = false;
  int parts = 0;
  void (*task)(void*, int) = nullptr;
  void* context = nullptr;
  int inside = 0;  // helpers that work on the current generation
  std::atomic<int> next{0};
  std::vector<std::thread> helpers;

  void take_parts() {
    for (;;) {
      const int part = next.fetch_add(1, std::memory_order_relaxed);
      if (part >= parts) return;
      task(context, part);
    }
  }

  void help() {
    std::uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      start.wait(lock, [&] { return stopping || generation != seen; });
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

ThreadPool::ThreadPool(int count) : state_(std::make_unique<State>()) {
  CHECK_GE(count, 1);
  for (int i = 1; i < count; ++i) {
    state_->helpers.emplace_back([state = state_.get()] { state->help(); });
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
  std::unique_lock<std::mutex> lock(s.mutex);
  s.done.wait(lock, [&] { return s.inside == 0; });
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
