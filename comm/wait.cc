#include "comm/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "sched/base/partition.h"

namespace sinew::comm {

namespace {

// A pause instruction takes 40 to 140 cycles: about 25 ns between two polls.
constexpr int kSpinsPerUs = 40;
constexpr int kSpinUs = 50;
// A yield that finds nobody else takes half a microsecond: a millisecond of them is cheaper than a
// sleep's wake-up.
constexpr std::int64_t kYieldNs = 1'000'000;
constexpr std::int64_t kSleepNs = 500'000;

// Not the private form: the word is shared between processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t timeout_ns) {
  const timespec timeout{0, timeout_ns};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

// Both in microseconds, as the kernel keeps them; no quota is "max" or -1.
double cores_of(const std::string& quota, const std::string& period) {
  const double allowed = std::strtod(quota.c_str(), nullptr);
  const double each = std::strtod(period.c_str(), nullptr);
  return allowed > 0 && each > 0 ? allowed / each : 0;
}

// What one control group leaves; 0: no quota. Groups of the second version have one file, those of
// the first two.
double quota_of(const std::string& folder) {
  std::string quota;
  std::string period;
  if (std::ifstream(folder + "/cpu.max") >> quota >> period) return cores_of(quota, period);
  std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  return cores_of(quota, period);
}

// The tightest quota of this process's group and those that it lies in.
double tightest_quota(const std::string& root, std::string group) {
  double least = 0;
  for (;;) {
    const double cores = quota_of(root + group);
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
    if (group.empty()) return least;
    group.erase(group.find_last_of('/'));
  }
}

// Lines of /proc/self/cgroup are NUMBER:CONTROLLERS:GROUP; no controllers: the second version.
double cgroup_quota() {
  std::ifstream file("/proc/self/cgroup");
  double least = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos || line.size() <= second + 1 || line[second + 1] != '/')
      continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string group = line.substr(second + 1);
    if (group == "/") group.clear();
    double cores = 0;
    if (controllers == ",,") {
      cores = tightest_quota("/sys/fs/cgroup", group);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      cores = tightest_quota("/sys/fs/cgroup/cpu", group);
    }
    if (cores > 0 && (least == 0 || cores < least)) least = cores;
  }
  return least;
}

}  // namespace

std::int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void Doorbell::wake() {
  rings.fetch_add(1, std::memory_order_release);  // meets the acquire in Waiter::rest
  syscall(SYS_futex, &rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Waiter::rest() {
  last_ns_ = now_ns();
  if (start_ns_ == 0) start_ns_ = last_ns_;
  if (waited_ns() < policy_.yield_ns) {
    sched_yield();
    return;
  }
  // Between raising the flag and sleeping the caller looks once more, so the first visit only
  // raises it.
  if (doorbell_.sleeping.load(std::memory_order_relaxed) == 0) {
    heard_ =
        doorbell_.rings.load(std::memory_order_acquire);  // meets the release in Doorbell::wake
    doorbell_.sleeping.store(1, std::memory_order_seq_cst);
    return;
  }
  futex_wait(doorbell_.rings, heard_, kSleepNs);
  heard_ = doorbell_.rings.load(std::memory_order_acquire);  // meets the release in Doorbell::wake
}

Cores usable_cores() {
  Cores cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < std::min(kMaxCores, CPU_SETSIZE); ++core) {
      if (CPU_ISSET(core, &set)) cores.mask[core / 64] |= std::uint64_t{1} << (core % 64);
    }
  } else {
    cores.mask[0] = 1;
  }
  cores.quota = cgroup_quota();
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  cores.machine = std::hash<std::string>()(boot);
  return cores;
}

Neighbours neighbours(std::span<const Cores> ranks, std::size_t own) {
  Neighbours found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].machine != ranks[own].machine) continue;
    if (rank == own) found.own = found.cores.size();
    found.cores.push_back(ranks[rank]);
  }
  return found;
}

int count_cores(std::span<const Cores> ranks) {
  Cores all;
  for (const Cores& rank : ranks) {
    for (int word = 0; word < kMaxCores / 64; ++word) all.mask[word] |= rank.mask[word];
    if (rank.quota > 0 && (all.quota == 0 || rank.quota < all.quota)) all.quota = rank.quota;
  }
  int cores = 0;
  for (const std::uint64_t word : all.mask) cores += __builtin_popcountll(word);
  if (all.quota > 0) cores = std::min(cores, static_cast<int>(std::lround(all.quota)));
  return std::max(cores, 1);
}

std::vector<int> share_of_cores(const Neighbours& ranks) {
  const Cores& mine = ranks.cores[ranks.own];
  std::vector<int> cores;
  for (int core = 0; core < kMaxCores; ++core) {
    if ((mine.mask[core / 64] >> (core % 64) & 1) != 0) cores.push_back(core);
  }
  std::int64_t alike = 0;  // ranks that may use the same cores
  std::int64_t before = 0;
  for (std::size_t rank = 0; rank < ranks.cores.size(); ++rank) {
    if (!std::ranges::equal(mine.mask, ranks.cores[rank].mask)) continue;
    ++alike;
    if (rank < ranks.own) ++before;
  }
  const auto count = static_cast<std::int64_t>(cores.size());
  if (count < alike) return {cores[static_cast<std::size_t>(before % count)]};
  const Part part = partition(count, static_cast<int>(alike), static_cast<int>(before));
  cores = {cores.begin() + part.offset, cores.begin() + part.offset + part.count};
  if (mine.quota > 0) {
    const double each = mine.quota / static_cast<double>(ranks.cores.size());
    cores.resize(std::min(cores.size(), static_cast<std::size_t>(std::max(1.0, each + 0.5))));
  }
  return cores;
}

WaitPolicy wait_policy(int ranks, int cores, int spin_us, double timeout_s) {
  WaitPolicy policy;
  policy.timeout_s = timeout_s;
  policy.yield_ns = kYieldNs;
  if (spin_us < 0) spin_us = ranks <= cores ? kSpinUs : 0;
  policy.spins = spin_us * kSpinsPerUs;
  return policy;
}

}  // namespace sinew::comm
