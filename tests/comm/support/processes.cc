#include "tests/comm/support/processes.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>

#include "sched/base/check.h"

namespace sinew::comm::testing {

namespace {

constexpr int kMostRanks = 16;
constexpr std::size_t kBlobBytes = 4096;

// Memory that the parent and all children share; zero at first.
struct Board {
  std::atomic<int> arrived;
  std::byte blobs[kMostRanks][kBlobBytes];
  char texts[kMostRanks][kBlobBytes];
  bool threw[kMostRanks];
};

class BoardBootstrap final : public Bootstrap {
 public:
  BoardBootstrap(Board& board, int rank, int world) : board_(board), rank_(rank), world_(world) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return world_; }

  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    CHECK_LE(mine.size(), kBlobBytes);
    std::memcpy(board_.blobs[rank_], mine.data(), mine.size());
    meet();
    for (int peer = 0; peer < world_; ++peer) {
      std::memcpy(all + static_cast<std::size_t>(peer) * mine.size(), board_.blobs[peer],
                  mine.size());
    }
    meet();
  }

 private:
  void meet() {
    goal_ += world_;
    board_.arrived.fetch_add(1, std::memory_order_acq_rel);
    while (board_.arrived.load(std::memory_order_acquire) < goal_) sched_yield();
  }
  Board& board_;
  int rank_;
  int world_;
  int goal_ = 0;
};

void run_child(Board& board, int rank, int world,
               const std::function<std::string(Bootstrap&)>& body) {
  BoardBootstrap bootstrap(board, rank, world);
  std::string text;
  try {
    text = body(bootstrap);
  } catch (const std::exception& error) {
    text = error.what();
    board.threw[rank] = true;
  }
  std::snprintf(board.texts[rank], kBlobBytes, "%s", text.c_str());
}

}  // namespace

bool Outcome::killed() const { return WIFSIGNALED(status); }

std::vector<Outcome> run_processes(int world, const std::function<std::string(Bootstrap&)>& body) {
  CHECK_LE(world, kMostRanks);
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* board = static_cast<Board*>(memory);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
      run_child(*board, rank, world, body);
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    CHECK_EQ(waitpid(children[static_cast<std::size_t>(rank)], &outcome.status, 0),
             children[static_cast<std::size_t>(rank)]);
    outcome.text = board->texts[rank];
    outcome.threw = board->threw[rank];
  }
  munmap(memory, sizeof(Board));
  return outcomes;
}

}  // namespace sinew::comm::testing
