// Bootstrap over MPI: the only file that sees mpi.h. MPI launches the ranks and carries setup
// blobs.
#include <mpi.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "comm/bootstrap.h"
#include "comm/error.h"
#include "sched/base/text.h"

namespace sinew::comm {

namespace {

// MPI itself is one per process, and so is what must be known when the process exits.
std::atomic<bool> finalize_at_exit{false};

void finalize() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalize_at_exit && finalized == 0) MPI_Finalize();
}

// MPI_Init waits for all ranks that were launched, without end: one that never calls it, as `true`
// does, or a subcommand that needs no ranks, would hold the others for ever. While this lives, the
// process ends at the deadline.
class InitDeadline {
 public:
  explicit InitDeadline(double timeout_s) : thread_([this, timeout_s] { watch(timeout_s); }) {}
  ~InitDeadline() {
    {
      const std::lock_guard lock(mutex_);
      came_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  InitDeadline(const InitDeadline&) = delete;
  InitDeadline& operator=(const InitDeadline&) = delete;

 private:
  void watch(double timeout_s) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [this] { return came_; }))
      return;
    std::fprintf(stderr,
                 "sinew: setup: not all ranks that were launched came to MPI_Init within %g s: "
                 "each must run a "
                 "subcommand that takes ranks\n",
                 timeout_s);
    _exit(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool came_ = false;
  std::thread thread_;
};

// A launcher of another MPI starts P processes that each believe to be alone: P wrong answers
// instead of one.
void check_launcher(int world) {
  if (world != 1) return;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string text(value);
    if (text.empty() || text == "1") continue;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(library, &length);
    const std::string version(library, static_cast<std::size_t>(length));
    throw Error(Cause::kResource, 0, -1,
                "launcher and program disagree about MPI: the launcher set " + std::string(name) +
                    "=" + text + " but this program's MPI (" +
                    version.substr(0, version.find_first_of(",\n")) +
                    ") sees 1 rank; start it with the mpirun of that MPI");
  }
}

class MpiBootstrap final : public Bootstrap {
 public:
  explicit MpiBootstrap(double timeout_s) : timeout_s_(timeout_s) {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0) {
      int provided = 0;
      const InitDeadline deadline(timeout_s);
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      finalize_at_exit = true;
      std::atexit(finalize);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_);
    check_launcher(world_);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return world_; }

  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    MPI_Request request = MPI_REQUEST_NULL;
    const int size = static_cast<int>(mine.size());
    MPI_Iallgather(mine.data(), size, MPI_BYTE, all, size, MPI_BYTE, MPI_COMM_WORLD, &request);
    constexpr long kPollNs = 20'000;
    double waited_s = 0;
    for (;;) {
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      if (done != 0) return;
      if (waited_s > timeout_s_) break;
      const timespec pause{0, kPollNs};
      nanosleep(&pause, nullptr);
      waited_s += 1e-9 * kPollNs;
    }
    mpi_skip_finalize();
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

std::unique_ptr<Bootstrap> mpi_bootstrap(double timeout_s) {
  return std::make_unique<MpiBootstrap>(timeout_s);
}

void mpi_skip_finalize() { finalize_at_exit = false; }

}  // namespace sinew::comm
