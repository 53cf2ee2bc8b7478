// doctor: looks at what most often spoils runs on a machine, each finding with its remedy. Exits 0:
// a finding is a fact, not a failure.
#include <fmt/format.h>
#if SINEW_HAVE_MPI
#include <mpi.h>
#endif
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "comm/bootstrap.h"
#include "comm/placement.h"
#include "sched/base/library.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/machine.h"
#include "tools/table.h"

namespace sinew::tools {
namespace {

struct Finding {
  std::string name;
  bool good = true;
  std::string found;
  std::string remedy;  // empty when good
};

// Each rank of a communicator maps a few MiB of lanes; symmetric buffers come on top.
constexpr std::int64_t kShmBytesMin = std::int64_t{64} << 20;
constexpr rlim_t kFilesMin = 1024;
constexpr rlim_t kLockedMin = rlim_t{64} << 20;

std::string limit_text(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? format_bytes(static_cast<std::int64_t>(limit)) : fmt::format("{}", limit);
}

Finding look_at_shm(const Machine& machine) {
  if (access("/dev/shm", W_OK) != 0) {
    return {"/dev/shm", false, "cannot be written",
            "ranks meet in it: mount -o remount,rw /dev/shm, or mount -t tmpfs tmpfs /dev/shm"};
  }
  const bool good = machine.shm_free_bytes >= kShmBytesMin;
  return {
      "/dev/shm", good,
      fmt::format("{} free of {}", format_bytes(machine.shm_free_bytes),
                  format_bytes(machine.shm_size_bytes)),
      "enlarge it: mount -o remount,size=2g /dev/shm, or start the container with --shm-size=2g"};
}

Finding look_at_cores(const Machine& machine) {
  const int together = concurrent_ranks(machine);
  return {"cores", together >= 2,
          fmt::format("{} without sharing a core; more are {}",
                      counted(together, "rank runs at once", "ranks run at once"),
                      comm::spreads_ranks() ? "kept equally many on each where that can be"
                                            : "left to the kernel, but by coll and tune"),
          "more ranks work, but take turns: widen the affinity (taskset, --cpuset-cpus) or the "
          "cgroup's cpu.max"};
}

Finding look_at_vectors(const Machine& machine) {
  const bool good = !machine.vector_sets.empty();
  return {"instruction sets", good, good ? join(machine.vector_sets, " ") : "portable code only",
          "kernels run, several times slower: use a processor with AVX2 or AVX-512"};
}

// The limit of the control group is what ends a run that needs more: the kernel kills it.
Finding look_at_memory(const Machine& machine) {
  const bool limited =
      machine.cgroup_memory_bytes > 0 && machine.cgroup_memory_bytes < machine.memory_bytes;
  return {
      "memory", !limited,
      limited ? fmt::format("{} of the machine's {} by the control group",
                            format_bytes(machine.cgroup_memory_bytes),
                            format_bytes(machine.memory_bytes))
              : format_bytes(machine.memory_bytes),
      "a run that needs more is killed: raise memory.max, or start the container with --memory"};
}

// A copy from this very process asks the same permission that peers need, except for the tracing
// rule.
Finding look_at_cma() {
  int source = 1;
  int target = 0;
  const iovec local = {&target, sizeof target};
  const iovec remote = {&source, sizeof source};
  const bool allowed = process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof source;
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  file >> scope;
  const bool good = allowed && scope == 0;
  return {"copies between processes", good,
          allowed ? fmt::format("allowed, ptrace_scope {}", scope) : "process_vm_readv is refused",
          allowed
              ? "sysctl kernel.yama.ptrace_scope=0 lets ranks read each other's buffers"
              : "the container's seccomp profile forbids it: start it with --cap-add=SYS_PTRACE"};
}

Finding look_at_limit(const std::string& name, decltype(RLIMIT_NOFILE) resource, rlim_t least,
                      bool bytes, const std::string& remedy) {
  rlimit limit = {};
  getrlimit(resource, &limit);
  const bool good = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least;
  return {name, good, limit_text(limit.rlim_cur, bytes), remedy};
}

int count_entries(const std::string& folder, const std::string& prefix) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(prefix)) ++count;
  }
  return count;
}

#if SINEW_HAVE_MPI
// The program `name` along the search path, or an empty text.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path == nullptr ? "" : path, ':')) {
    std::string candidate = fmt::format("{}/{}", folder, name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

Finding look_at_mpi() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version = {};
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  const std::string_view whole = version.data();
  const std::string_view name = whole.substr(0, whole.find_first_of(",\n"));
  if (const comm::Obstacle obstacle = comm::obstacle_to_mpi(); !obstacle.found.empty())
    return {"MPI", false, obstacle.found, obstacle.remedy};
  const std::string launcher = find_program("mpirun");
  return {"MPI", !launcher.empty(),
          fmt::format("{}, {}", name, launcher.empty() ? "no mpirun in PATH" : launcher),
          "mpirun starts the ranks: apt-get install openmpi-bin"};
}
#else
Finding look_at_mpi() {
  return {"MPI", false, "this build has none",
          "ranks are started by tools/launch.sh; for mpirun: apt-get install libopenmpi-dev "
          "openmpi-bin, and build anew"};
}
#endif

struct Device {
  const char* name;
  const char* library;
  const char* folder;  // an entry of it that begins with `prefix` is a device
  const char* prefix;
  const char* what_for;
};

// One machine needs none of these: that one is missing is a note.
constexpr std::array kDevices = {
    Device{"UCX", "libucp.so.0", nullptr, nullptr, "runs over a network: apt-get install libucx0"},
    Device{"RDMA verbs", "libibverbs.so.1", "/sys/class/infiniband", "",
           "runs over RDMA: apt-get install libibverbs1, and a device"},
    Device{"CUDA", "libcuda.so.1", "/dev", "nvidia",
           "GPU kernels: a GPU with its driver, passed into the container"},
};

Finding look_at_device(const Device& device) {
  const bool loaded = Library(device.library).missing().empty();
  const int count = device.folder == nullptr ? 1 : count_entries(device.folder, device.prefix);
  const std::string devices = device.folder == nullptr ? "" : ", " + counted(count, "device");
  return {device.name, loaded && count > 0,
          fmt::format("{} {}{}", device.library, loaded ? "loads" : "is not there", devices),
          fmt::format("not needed on one machine; only for {}", device.what_for)};
}

Finding look_at_threads() {
  const char* value = std::getenv("OMP_NUM_THREADS");
  return {"OMP_NUM_THREADS", true,
          value == nullptr ? "not set" : fmt::format("{}, which is not read", value), ""};
}

std::vector<Finding> look(const Machine& machine) {
  std::vector<Finding> findings = {
      look_at_cores(machine),
      look_at_vectors(machine),
      look_at_memory(machine),
      look_at_shm(machine),
      look_at_cma(),
      look_at_limit("open files", RLIMIT_NOFILE, kFilesMin, false, "ulimit -n 4096"),
      look_at_limit("locked memory", RLIMIT_MEMLOCK, kLockedMin, true,
                    "only RDMA and GPUs need it: ulimit -l unlimited, or memlock in "
                    "/etc/security/limits.conf"),
      look_at_threads(),
      look_at_mpi(),
  };
  for (const Device& device : kDevices) findings.push_back(look_at_device(device));
  return findings;
}

struct Options {
  std::string json;
};

int run_doctor(const Options& options) {
  JsonLines json(options.json);
  for (const Finding& finding : look(describe_machine())) {
    fmt::print("{:<4} {:<26}{}\n", finding.good ? "ok" : "note", finding.name, finding.found);
    if (!finding.good) fmt::print("     {:<26}{}\n", "", finding.remedy);
    JsonRecord record;
    record.add("name", finding.name).add("good", finding.good).add("found", finding.found);
    if (!finding.good) record.add("remedy", finding.remedy);
    json.write(record);
  }
  json.keep();
  return 0;
}

}  // namespace

Run declare_doctor(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--json", o->json, "write JSON lines to this file");
  return [o] { return run_doctor(*o); };
}

}  // namespace sinew::tools
