#include "bench/kernels/processor_time.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace sinew::bench {

double seconds_now(int threads) {
  if (threads > 1) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void wait_until_idle() {
  const auto process_seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  for (int i = 0; i < 100; ++i) {
    const double begin = process_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (process_seconds() - begin < 2e-4) return;
  }
}

std::vector<int> first_cores(int count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE && static_cast<int>(cores.size()) < count; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
  return cores;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sinew::bench
