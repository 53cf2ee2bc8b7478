#include "bench/kernels/processor_time.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
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
  // Processor time would not do: of a thread that runs elsewhere it grows in ticks of up to 10 ms.
  // A thread that spins is running or ready to run at each look.
  const std::string own = std::to_string(gettid());
  const auto others_rest = [&] {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      if (task.path().filename() == own) continue;
      std::ifstream file(task.path() / "stat");
      std::string line;
      // The state follows the name, which stands in parentheses and may contain any.
      if (!std::getline(file, line)) continue;
      const auto name_end = line.rfind(')');
      if (name_end != std::string::npos && line.substr(name_end, 3) == ") R") return false;
    }
    return true;
  };
  constexpr int kLooks = 3;
  int rested = 0;
  for (int i = 0; i < 1000 && rested < kLooks; ++i) {
    rested = others_rest() ? rested + 1 : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
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
