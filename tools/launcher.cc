#include "tools/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "comm/last_line.h"
#include "tools/escape.h"

namespace sinew::tools {
namespace {

// Ranks that wait in vain speak one after the other, so that the next is ended before its turn.
constexpr double kPatience_s = 3.0;  // a launcher on a loaded machine takes over one
constexpr double kTurn_s = 0.25;
constexpr double kPatienceMax_s = 6.0;

bool names_a_folder(const char* variable) {
  const char* folder = std::getenv(variable);
  return folder != nullptr && access(folder, F_OK) == 0;
}

bool pmi_is_open() {
  const char* descriptor = std::getenv("PMI_FD");
  return std::getenv("PMI_PORT") != nullptr ||
         (descriptor != nullptr && fcntl(std::atoi(descriptor), F_GETFD) >= 0);
}

struct Names {
  const char* rank;
  const char* world;
  const char* local;
  bool (*lives)();  // whether what the launcher keeps for its ranks is there
};

bool pmix_is_there() { return names_a_folder("PMIX_SERVER_TMPDIR"); }

// tools/launch.sh, Open MPI, MPICH and others that speak PMI, then Slurm's srun --mpi=pmix.
constexpr Names kLaunchers[] = {
    {"SINEW_RANK", "SINEW_WORLD", "SINEW_WORLD", [] { return names_a_folder("SINEW_MEET"); }},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", pmix_is_there},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", pmi_is_open},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", pmix_is_there}};

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
    // Variables outlive a launcher, in a shell that it started for instance: no other rank speaks.
    return {true, names.lives() ? std::atoi(rank) : 0, std::atoi(world),
            std::atoi(local != nullptr ? local : world), &names == kLaunchers};
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

void exit_alone(const std::string& line, int code) { comm::exit_with_line(escaped(line), code); }

}  // namespace sinew::tools
