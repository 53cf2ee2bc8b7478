// Launcher: what mpirun told this process through its environment, before and without MPI.
//
// Never does: call MPI. Threads: the environment is only read.
#pragma once

#include <string>

namespace sinew::tools {

struct Launcher {
  bool present = false;  // started by mpirun, mpiexec or srun
  int rank = 0;          // 0 too where the launcher has ended and left its variables
  int world = 1;
  int local = 1;         // ranks on this machine
  bool sockets = false;  // by tools/launch.sh: there is no MPI
};

[[nodiscard]] Launcher launcher_of_environment();

// How ranks end a failed run with one line in total: the rank that is to speak prints and exits,
// which makes mpirun end the others. Those wait for that, for a bounded time, since an earlier exit
// of theirs would make mpirun end the speaker before it has printed; a rank that waited in vain
// speaks itself.

// All ranks know of the failure: the first one speaks.
[[noreturn]] void exit_together(int rank, const std::string& line, int code);

// Another rank failed and will speak; `line` says so, for the case that it was killed.
[[noreturn]] void exit_after_others(const std::string& line, int code);

// Only this rank may know: it speaks at once.
[[noreturn]] void exit_alone(const std::string& line, int code);

}  // namespace sinew::tools
