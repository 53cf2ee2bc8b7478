// Bootstrap over MPI: the only file that sees mpi.h. MPI launches the ranks and carries setup
// blobs.
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "comm/bootstrap.h"
#include "comm/error.h"
#include "comm/last_line.h"
#include "sched/base/text.h"
#include "sched/base/units.h"

namespace sinew::comm {

namespace {

// MPI itself is one per process, and so is what must be known when the process exits.
std::atomic<bool> finalize_at_exit{false};
// A set-up that ended at its deadline is still under way inside MPI, where the next would meet it.
std::atomic<bool> given_up{false};

void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalize_at_exit && finalized == 0) MPI_Finalize();
}

// MPI_Init waits for all ranks that were launched, without end: one that never calls it, as `true`
// does, or a subcommand that needs no ranks, would hold the others for ever. Open MPI ends them
// where that one left late enough, and says why unless it was told to be quiet. While this lives,
// the process ends at the deadline or by its launcher's SIGTERM, and one rank of each machine says
// so.
class InitDeadline {
 public:
  explicit InitDeadline(double timeout_s) {
    sigemptyset(&ended_);
    sigaddset(&ended_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ended_, &before_);
    thread_ = std::thread([this, timeout_s] { watch(timeout_s); });
  }
  ~InitDeadline() {
    // It ends no thread: it is blocked, and watch() takes it.
    // NOLINTNEXTLINE(bugprone-bad-signal-to-kill-thread)
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  InitDeadline(const InitDeadline&) = delete;
  InitDeadline& operator=(const InitDeadline&) = delete;

 private:
  void watch(double timeout_s) const {
    const double whole_s = std::floor(timeout_s);
    const timespec patience{static_cast<time_t>(whole_s),
                            static_cast<long>((timeout_s - whole_s) * 1e9)};
    siginfo_t info{};
    const int signal = sigtimedwait(&ended_, &info, &patience);
    if (signal == SIGTERM && info.si_pid == getpid()) return;  // the destructor: all came
    const std::string when =
        signal == SIGTERM ? "until the launcher ended this one" : within(timeout_s);
    const std::string line = "sinew: setup: not all ranks that were launched came to MPI_Init " +
                             when + ": each must run a subcommand that takes ranks";
    const int code = signal == SIGTERM ? 128 + SIGTERM : 1;
    if (is_first_to_speak()) exit_with_line(line, code);
    _exit(code);
  }

  static std::string within(double timeout_s) {
    std::ostringstream text;
    text << "within " << timeout_s << " s";
    return text.str();
  }

  // Whoever makes the file, in the launcher's own folder, which it removes.
  static bool is_first_to_speak() {
    const char* folder = std::getenv("PMIX_SERVER_TMPDIR");
    if (folder == nullptr) return true;
    const std::string path = std::string(folder) + "/sinew-setup-ended";
    return open(path.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0 || errno != EEXIST;
  }

  sigset_t ended_{}, before_{};
  std::thread thread_;
};

// A launcher of another MPI starts P processes that each believe to be alone: P wrong answers
// instead of one.
void check_launcher(int world) {
  if (world != 1) return;
  static constexpr const char* kSlurm = "SLURM_STEP_NUM_TASKS";
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", kSlurm}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string text(value);
    // The nearest launcher comes first; Slurm may have started that one, with numbers of its own.
    if (text == "1") return;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(library, &length);
    const std::string version(library, static_cast<std::size_t>(length));
    throw Error(Cause::kResource, 0, -1,
                "launcher and program disagree about MPI: the launcher set " + std::string(name) +
                    "=" + text + " but this program's MPI (" +
                    version.substr(0, version.find_first_of(",\n")) +
                    ") sees 1 rank; start it with the mpirun of that MPI" +
                    (name == kSlurm ? ", or as srun --mpi=pmix" : ""));
  }
}

void check_obstacle() {
  if (std::getenv("PMIX_SERVER_TMPDIR") != nullptr) return;  // the launcher has its files
  const Obstacle obstacle = obstacle_to_mpi();
  if (obstacle.found.empty()) return;
  throw Error(Cause::kResource, 0, -1, "setup: " + obstacle.found + ": " + obstacle.remedy);
}

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(double timeout_s) : timeout_s_(timeout_s) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      check_obstacle();
      int provided = 0;
      const InitDeadline deadline(timeout_s);
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      finalize_at_exit = true;
      std::atexit(finalize);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_);
    check_launcher(world_);
    if (given_up) {
      throw Error(
          Cause::kTimeout, rank_, -1,
          "setup: an earlier one was given up at its deadline, and MPI is still in it; start "
          "the ranks again");
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return world_; }

  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const std::size_t size = mine.size();
    const std::size_t whole = size * static_cast<std::size_t>(world_);
    // MPI may still be at it when the deadline has passed and the caller's memory is gone.
    auto memory = std::make_unique<std::byte[]>(size + whole);
    std::byte* const gathered = memory.get() + size;
    std::copy(mine.begin(), mine.end(), memory.get());
    MPI_Iallgather(memory.get(), static_cast<int>(size), MPI_BYTE, gathered, static_cast<int>(size),
                   MPI_BYTE, MPI_COMM_WORLD, &request);
    constexpr long kPollNs = 20'000;
    double waited_s = 0;
    for (;;) {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) {
        std::copy_n(gathered, whole, all);
        return;
      }
      if (waited_s > timeout_s_) break;
      const timespec pause{0, kPollNs};
      nanosleep(&pause, nullptr);
      waited_s += 1e-9 * kPollNs;
    }
    (void)memory.release();
    mpi_skip_finalize();
    given_up = true;
    throw Error(
        Cause::kTimeout, rank_, -1,
        "setup: not all of the " + std::to_string(world_) + " ranks came within the deadline");
  }

 private:
  double timeout_s_;
  int rank_ = 0;
  int world_ = 1;
};

}  // namespace

// Open MPI 4 keeps files in its folder for temporary ones. Where they do not fit, a process alone
// prints a page of internals and mpirun waits without end; tools/mpirun.sh looks, too.
Obstacle obstacle_to_mpi() {
#if defined(OPEN_MPI)
  constexpr std::int64_t kNeeded = std::int64_t{8} << 20;  // 6 MiB do not do, 9 do
  std::string folder = "/tmp";
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    folder = value;
    break;
  }
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0) return {};
  const auto free_bytes = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  if (free_bytes >= kNeeded) return {};
  return {"Open MPI needs " + format_bytes(kNeeded) + " for temporary files and " + folder +
              " has " + format_bytes(free_bytes) + " free",
          "make room there, or name another folder by TMPDIR"};
#else
  return {};
#endif
}

std::unique_ptr<Bootstrap> mpi_bootstrap(double timeout_s) {
  return std::make_unique<MpiBootstrap>(timeout_s);
}

void mpi_skip_finalize() { finalize_at_exit = false; }

}  // namespace sinew::comm
