#include "tools/launcher.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace sinew::tools {
namespace {

// Ranks that wait in vain speak one after the other, so that the next is ended before its turn.
constexpr double kPatience_s = 1.0;
constexpr double kTurn_s = 0.25;
constexpr double kPatienceMax_s = 5.0;

struct Names {
  const char* rank;
  const char* world;
  const char* local;
};

// tools/launch.sh, Open MPI, then MPICH and others that speak PMI.
constexpr Names kLaunchers[] = {
    {"SINEW_RANK", "SINEW_WORLD", "SINEW_WORLD"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"}};

// How many bytes a character of UTF-8 that can be shown takes at the start of `text`; 0 where none
// stands.
std::size_t shown_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc2 ? 2 : 0;
  if (length > text.size() || byte(0) > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  // What follows 0xc2 here are the control characters of the upper half.
  return length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : length;
}

// A message may quote a file of any bytes: a terminal gets none that it would obey. Lines of a
// drawing stay lines.
std::string escaped(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    std::size_t length = text[0] == '\n' ? 1 : shown_length(text);
    if (length > 0) {
      safe += text.substr(0, length);
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(text[0]);
      safe += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
      length = 1;
    }
    text.remove_prefix(length);
  }
  return safe;
}

void print_line(const std::string& line) {
  std::fflush(stdout);
  const std::string text = escaped(line) + "\n";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

// Returns when mpirun ends this process or the time has passed, whichever is first.
void wait_for_the_end(double seconds) {
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGTERM);
  sigprocmask(SIG_BLOCK, &ended, nullptr);
  const auto whole = static_cast<time_t>(seconds);
  const timespec patience = {whole,
                             static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  if (sigtimedwait(&ended, nullptr, &patience) == SIGTERM) std::_Exit(128 + SIGTERM);
}

}  // namespace

Launcher launcher_of_environment() {
  for (const Names& names : kLaunchers) {
    const char* rank = std::getenv(names.rank);
    const char* world = std::getenv(names.world);
    if (rank == nullptr || world == nullptr) continue;
    const char* local = std::getenv(names.local);
    return {true, std::atoi(rank), std::atoi(world), std::atoi(local != nullptr ? local : world),
            &names == kLaunchers};
  }
  return {};
}

void exit_together(int rank, const std::string& line, int code) {
  if (rank != 0) wait_for_the_end(std::min(kPatience_s + rank * kTurn_s, kPatienceMax_s));
  exit_alone(line, code);
}

void exit_after_others(const std::string& line, int code) {
  wait_for_the_end(kPatienceMax_s);
  exit_alone(line, code);
}

void exit_alone(const std::string& line, int code) {
  print_line(line);
  std::_Exit(code);
}

}  // namespace sinew::tools
