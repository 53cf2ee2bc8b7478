#include "tools/machine.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <sstream>

#include "comm/wait.h"
#include "kernels/reduce.h"
#include "sched/base/error.h"
#include "sched/base/units.h"

namespace sinew::tools {
namespace {

// The first line of a file of the kernel, empty when there is none.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Limits of memory in control groups: the unified hierarchy's, and version 1's.
struct MemoryGroups {
  std::string root;
  std::string line;  // how this process's group begins in /proc/self/cgroup, after the number
  std::string file;
};
const MemoryGroups kMemoryGroups[] = {
    {"/sys/fs/cgroup", "::", "/memory.max"},
    {"/sys/fs/cgroup/memory", ":memory:", "/memory.limit_in_bytes"},
};

// The folder of this process's group.
std::string folder_of(const MemoryGroups& groups) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && line.compare(colon, groups.line.size(), groups.line) == 0)
      return groups.root + line.substr(colon + groups.line.size());
  }
  return groups.root;
}

// The tightest limits between this process's group and the root.
void read_cgroup(Machine& machine) {
  machine.cgroup_cores = comm::usable_cores().quota;
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // version 1 says none by a huge one
  for (const MemoryGroups& groups : kMemoryGroups) {
    std::string folder = folder_of(groups);
    while (folder.size() >= groups.root.size()) {
      std::istringstream memory(first_line(folder + groups.file));
      std::int64_t limit = 0;
      if (memory >> limit && limit > 0 && limit < kNoLimit) {
        machine.cgroup_memory_bytes =
            machine.cgroup_memory_bytes == 0 ? limit : std::min(machine.cgroup_memory_bytes, limit);
      }
      folder.erase(folder.find_last_of('/'));
    }
  }
}

void read_topology(Machine& machine) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return;
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(
      raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return;
  machine.cores = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE);
  machine.threads = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PU);
  machine.packages = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_PACKAGE);
  machine.numa_domains = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE);
  if (const hwloc_obj_t package = hwloc_get_obj_by_type(raw, HWLOC_OBJ_PACKAGE, 0)) {
    if (const char* model = hwloc_obj_get_info_by_name(package, "CPUModel"))
      machine.processor = model;
  }
  int level = 0;
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE}) {
    ++level;
    const hwloc_obj_t cache = hwloc_get_obj_by_type(raw, type, 0);
    if (cache == nullptr) continue;
    machine.caches.push_back(
        {level, static_cast<std::int64_t>(cache->attr->cache.size),
         hwloc_get_nbobjs_by_type(raw, type),
         hwloc_get_nbobjs_inside_cpuset_by_type(raw, cache->cpuset, HWLOC_OBJ_CORE)});
  }
}

void read_vector_sets(Machine& machine) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    machine.vector_sets.push_back("avx2");
  if (__builtin_cpu_supports("avx512f")) machine.vector_sets.push_back("avx512");
  if (__builtin_cpu_supports("avx512bf16")) machine.vector_sets.push_back("avx512bf16");
#endif
}

}  // namespace

Machine describe_machine() {
  Machine machine;
  read_topology(machine);
  read_cgroup(machine);
  read_vector_sets(machine);
  // The topology library sums memory domains as the firmware lists them, which misses hot-plugged
  // memory.
  machine.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  machine.usable_cores =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : machine.cores;
  struct statvfs shm = {};
  if (statvfs("/dev/shm", &shm) == 0) {
    machine.shm_size_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    machine.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  return machine;
}

int concurrent_ranks(const Machine& machine) {
  int cores = std::max(1, machine.usable_cores);
  if (machine.cgroup_cores > 0)
    cores = std::min(cores, static_cast<int>(std::ceil(machine.cgroup_cores)));
  return std::max(1, cores);
}

void require_memory(const Machine& machine, const std::string& what, double needed_bytes) {
  std::int64_t limit = machine.memory_bytes;
  if (machine.cgroup_memory_bytes > 0) limit = std::min(limit, machine.cgroup_memory_bytes);
  if (limit <= 0 || needed_bytes <= static_cast<double>(limit)) return;
  const double shown = std::min(needed_bytes, 9e18);
  throw UsageError(fmt::format("{} needs {} for all ranks: this machine has {}", what,
                               format_bytes(static_cast<std::int64_t>(shown)),
                               format_bytes(limit)));
}

double copy_bandwidth(std::int64_t size_bytes, int repetitions) {
  const auto size = static_cast<std::size_t>(size_bytes);
  const auto source = std::make_unique<char[]>(size);
  const auto target = std::make_unique<char[]>(size);
  std::memset(source.get(), 1, size);
  std::memset(target.get(), 2, size);
  double best_s = std::numeric_limits<double>::infinity();
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    source[0] = static_cast<char>(repetition);
    const auto begin = std::chrono::steady_clock::now();
    kernels::copy(target.get(), source.get(), size_bytes);
    // The compiler must believe that somebody reads the copy.
    asm volatile("" : : "r"(target.get()) : "memory");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best_s = std::min(best_s, taken.count());
  }
  return 2 * static_cast<double>(size_bytes) / best_s;
}

}  // namespace sinew::tools
