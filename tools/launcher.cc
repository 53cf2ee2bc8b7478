#include "tools/launcher.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace sinew::tools {
namespace {

constexpr int kPatience_s = 2;

struct Names {
  const char* rank;
  const char* world;
};

// Open MPI, then MPICH and others that speak PMI.
constexpr Names kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                {"PMI_RANK", "PMI_SIZE"}};

void print_line(const std::string& line) {
  std::fflush(stdout);
  const std::string text = line + "\n";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

Launcher launcher_of_environment() {
  for (const Names& names : kLaunchers) {
    const char* rank = std::getenv(names.rank);
    const char* world = std::getenv(names.world);
    if (rank != nullptr && world != nullptr) return {true, std::atoi(rank), std::atoi(world)};
  }
  return {};
}

void exit_together(const Launcher& launcher, const std::string& line, int code) {
  if (launcher.rank != 0) {
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGTERM);
    sigprocmask(SIG_BLOCK, &ended, nullptr);
    const timespec patience = {kPatience_s, 0};
    sigtimedwait(&ended, nullptr, &patience);
    std::_Exit(code);
  }
  exit_alone(line, code);
}

void exit_alone(const std::string& line, int code) {
  print_line(line);
  std::_Exit(code);
}

}  // namespace sinew::tools
