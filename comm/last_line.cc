#include "comm/last_line.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace sinew::comm {
namespace {

constexpr int kReadPatience_ms = 2000;  // a reader that was stopped must not hold the run
constexpr int kPassOn_ms = 10;          // from a launcher's memory to its own standard error

// Terminals and files need no reader.
void wait_until_read(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  for (int waited_ms = 0; waited_ms < kReadPatience_ms; ++waited_ms) {
    int unread = 0;
    if (ioctl(descriptor, FIONREAD, &unread) != 0) return;
    if (unread == 0) break;
    pollfd writer{descriptor, 0, 0};
    if (poll(&writer, 1, 1) != 0) return;  // its reader is gone
  }
  const timespec pause{0, kPassOn_ms * 1'000'000L};
  nanosleep(&pause, nullptr);
}

}  // namespace

void exit_with_line(const std::string& line, int code) {
  std::fflush(stdout);
  const std::string text = line + "\n";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  wait_until_read(STDERR_FILENO);
  std::_Exit(code);
}

}  // namespace sinew::comm
