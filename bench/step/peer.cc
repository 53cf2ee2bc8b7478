#include "bench/step/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "model/config.h"
#include "sched/base/error.h"

namespace sinew::bench {
namespace {

constexpr int kAnswerDeadline_ms = 120'000;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what + ": " + std::strerror(errno));
}

std::string arguments_of(const StepCase& s) {
  const model::Config c = model::load_config(s.model);
  return fmt::format("{} {} {} {} {} {} {} {}", c.layers, c.heads, c.channels, c.vocabulary,
                     c.max_time, s.batch, s.time, s.dtype);
}

}  // namespace

Peer::Peer(std::string name, const std::string& command, const StepCase& step_case)
    : name_(std::move(name)) {
  // A program that has ended shows as an error of the write, not as a signal.
  signal(SIGPIPE, SIG_IGN);
  int input[2];
  int output[2];
  require(pipe2(input, O_CLOEXEC) == 0 && pipe2(output, O_CLOEXEC) == 0, "pipe");
  to_ = input[1];
  from_ = output[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  const std::string line = "exec " + command + " " + arguments_of(step_case);
  const char* arguments[] = {"sh", "-c", line.c_str(), nullptr};
  const int failed = posix_spawn(&pid_, "/bin/sh", &actions, nullptr,
                                 const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  if (failed != 0) throw Error(fmt::format("{} cannot be started: {}", name_, strerror(failed)));
  const std::string answer = read_line();
  constexpr std::string_view kSkipped = "skipped: ";
  if (answer.starts_with(kSkipped)) {
    skipped_ = answer.substr(kSkipped.size());
  } else if (answer != "ready") {
    throw Error(
        fmt::format("{} answered '{}' instead of 'ready' or 'skipped: REASON'", name_, answer));
  }
}

Peer::~Peer() {
  close(to_);
  close(from_);
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }
}

double Peer::step() {
  require(write(to_, "step\n", 5) == 5, name_ + " takes no request");
  const std::string answer = read_line();
  char* end = nullptr;
  const double seconds = std::strtod(answer.c_str(), &end);
  if (end == answer.c_str() || *end != '\0' || !(seconds > 0))
    throw Error(fmt::format("{} answered '{}', not the seconds of a step", name_, answer));
  return seconds;
}

std::string Peer::read_line() {
  for (;;) {
    if (const auto end = unread_.find('\n'); end != std::string::npos) {
      const std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd wanted{from_, POLLIN, 0};
    const int ready = poll(&wanted, 1, kAnswerDeadline_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0)
      throw Error(fmt::format("{} gave no answer within {} ms", name_, kAnswerDeadline_ms));
    char buffer[256];
    const ssize_t count = read(from_, buffer, sizeof(buffer));
    if (count == 0) throw Error(name_ + " ended");
    require(count > 0, name_ + " cannot be read");
    unread_.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace sinew::bench
