// Machine: what this process can use of the machine it runs on, for people and for recorded
// results.
//
// Never does: change anything (affinity, limits). Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinew::tools {

struct CacheLevel {
  int level = 0;
  std::int64_t size_bytes = 0;
  int count = 0;  // how many of them the machine has
  int cores_sharing = 0;
};

struct Machine {
  std::string processor;  // the vendor's name
  int cores = 0;          // of the machine
  int threads = 0;        // hardware threads of the machine
  int packages = 0;
  int numa_domains = 0;
  int usable_cores = 0;     // what affinity leaves to this process
  double cgroup_cores = 0;  // what the control group's quota leaves; 0: no quota
  std::int64_t memory_bytes = 0;
  std::int64_t cgroup_memory_bytes = 0;  // 0: no limit
  std::int64_t shm_size_bytes = 0;       // of /dev/shm
  std::int64_t shm_free_bytes = 0;
  std::vector<std::string> vector_sets;  // instruction sets kernels may choose, best last
  std::vector<CacheLevel> caches;
};

[[nodiscard]] Machine describe_machine();

// Ranks that can run at once without sharing a core: affinity and quota, whichever is less, at
// least 1.
[[nodiscard]] int concurrent_ranks(const Machine& machine);

// Throws UsageError when `needed_bytes`, of all ranks together, is more than this machine or its
// control group has; `what` names the option and its value.
void require_memory(const Machine& machine, const std::string& what, double needed_bytes);

// Bytes per second that one thread copies (read plus written) between two buffers of size_bytes
// each; the best of `repetitions`. Two buffers larger than the last cache measure memory.
[[nodiscard]] double copy_bandwidth(std::int64_t size_bytes, int repetitions);

}  // namespace sinew::tools
