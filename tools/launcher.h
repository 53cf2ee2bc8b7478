// Launcher: what mpirun told this process through its environment, before and without MPI.
//
// Never does: call MPI. Threads: the environment is only read.
#pragma once

#include <string>

namespace sinew::tools {

struct Launcher {
  bool present = false;  // started by mpirun, mpiexec or srun
  int rank = 0;
  int world = 1;
};

[[nodiscard]] Launcher launcher_of_environment();

// Ends this process with `code` after one line in total was printed for all ranks of the launcher:
// the first rank prints and exits, which makes mpirun end the others; those wait for that, at most
// two seconds, since an earlier exit of theirs would make mpirun end the first rank before it has
// printed.
[[noreturn]] void exit_together(const Launcher& launcher, const std::string& line, int code);

// The same for a failure that only this rank may know: it prints and exits at once.
[[noreturn]] void exit_alone(const std::string& line, int code);

}  // namespace sinew::tools
