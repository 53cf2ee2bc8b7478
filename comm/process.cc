#include "comm/process.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstring>

namespace sinew::comm {

namespace {

struct ProcessState {
  bool found = false;
  char state = ' ';  // as in /proc/PID/stat; Z and X are dead
  std::uint64_t start_time = 0;
};

// Field 3 is the state, field 22 the start time in ticks since boot; the name in between may hold
// blanks.
ProcessState read_process(int pid) {
  ProcessState result;
  std::FILE* file = std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re");
  if (file == nullptr) return result;
  char text[1024];
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[size] = '\0';
  const char* after_name = std::strrchr(text, ')');
  if (after_name == nullptr) return result;
  unsigned long long start = 0;
  result.found =
      std::sscanf(
          after_name + 1,
          " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
          &result.state, &start) == 2;
  result.start_time = start;
  return result;
}

}  // namespace

std::uint64_t process_start_time(int pid) { return read_process(pid).start_time; }

bool process_lives(int pid, std::uint64_t start_time) {
  const ProcessState process = read_process(pid);
  return process.found && process.start_time == start_time && process.state != 'Z' &&
         process.state != 'X';
}

}  // namespace sinew::comm
