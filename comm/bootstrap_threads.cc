// Bootstrap for threads of one process: a shared board that every rank writes its blob on.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "comm/bootstrap.h"
#include "comm/error.h"
#include "sched/base/check.h"

namespace sinew::comm {

namespace {

struct Board {
  Board(int ranks, double seconds) : world(ranks), timeout_s(seconds) {}
  const int world;
  const double timeout_s;
  std::mutex mutex;
  std::condition_variable all_written;
  std::vector<std::byte> blobs;
  std::vector<std::byte> complete;
  int written = 0;
  std::uint64_t round = 0;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<Board> board, int rank) : board_(std::move(board)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return board_->world; }

  // A board is reused round after round: nobody can start round n+1's completion before everyone
  // has left round n, because completion needs all ranks to have written again.
  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    Board& board = *board_;
    std::unique_lock lock(board.mutex);
    const std::size_t total = mine.size() * static_cast<std::size_t>(board.world);
    board.blobs.resize(total);
    std::memcpy(board.blobs.data() + mine.size() * static_cast<std::size_t>(rank_), mine.data(),
                mine.size());
    const std::uint64_t round = board.round;
    if (++board.written == board.world) {
      board.complete = board.blobs;
      board.written = 0;
      ++board.round;
      board.all_written.notify_all();
    } else if (!board.all_written.wait_for(lock, std::chrono::duration<double>(board.timeout_s),
                                           [&] { return board.round != round; })) {
      throw Error(Cause::kTimeout, rank_, -1, "setup: a thread did not come within the deadline");
    }
    CHECK_EQ(board.complete.size(), total);
    std::memcpy(all, board.complete.data(), total);
  }

 private:
  std::shared_ptr<Board> board_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Bootstrap>> thread_bootstraps(int world, double timeout_s) {
  auto board = std::make_shared<Board>(world, timeout_s);
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::make_unique<ThreadBootstrap>(board, rank));
  return ranks;
}

}  // namespace sinew::comm
