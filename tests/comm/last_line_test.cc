// The line that a failed process ends with: it waits for its reader, and not for one that is gone.
#include "comm/last_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace sinew::comm {
namespace {

// A process that ends with a line on a pipe whose reading end this one holds.
class Speaker {
 public:
  Speaker() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    std::fflush(stdout);  // else the child writes it again
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      dup2(ends[1], STDERR_FILENO);
      exit_with_line("rank 3: the last line", 7);
    }
    close(ends[1]);
    reader_ = ends[0];
  }
  ~Speaker() {
    if (reader_ >= 0) close(reader_);
  }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  void wait_for_the_line() const {
    pollfd readable{reader_, POLLIN, 0};
    ASSERT_EQ(poll(&readable, 1, 10'000), 1);
  }
  [[nodiscard]] bool ended() const { return waitpid(pid_, nullptr, WNOHANG) == pid_; }
  std::string read_all() const {
    std::string text;
    std::array<char, 64> piece{};
    for (;;) {
      const ssize_t bytes = read(reader_, piece.data(), piece.size());
      if (bytes <= 0) return text;
      text.append(piece.data(), static_cast<std::size_t>(bytes));
    }
  }
  void leave() {
    close(reader_);
    reader_ = -1;
  }
  [[nodiscard]] int exit_code() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int reader_ = -1;
};

TEST(LastLine, TheProcessLivesUntilItWasRead) {
  const Speaker speaker;
  speaker.wait_for_the_line();
  usleep(200'000);  // long enough for one that does not wait
  EXPECT_FALSE(speaker.ended());
  EXPECT_EQ(speaker.read_all(), "rank 3: the last line\n");
  EXPECT_EQ(speaker.exit_code(), 7);
}

TEST(LastLine, AReaderThatLeavesIsNotWaitedFor) {
  Speaker speaker;
  speaker.wait_for_the_line();
  speaker.leave();
  EXPECT_EQ(speaker.exit_code(), 7);
}

// Its patience ends by itself.
TEST(LastLine, AReaderThatNeverReadsHoldsNobodyForEver) {
  const Speaker speaker;
  EXPECT_EQ(speaker.exit_code(), 7);
}

}  // namespace
}  // namespace sinew::comm
