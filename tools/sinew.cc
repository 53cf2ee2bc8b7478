// sinew: the command line. `sinew SUBCOMMAND --help` says what each takes. Bad input ends every
// rank with exit code 2 and one line in total; a failure at run time ends them with exit code 1.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/error.h"
#include "sched/base/error.h"
#include "tools/command.h"
#include "tools/launcher.h"

namespace sinew::tools {
namespace {

constexpr std::array kCommands = {
    Command{"coll", "measure collectives: prediction, bound and MPI beside", Launch::kRanks,
            declare_coll},
    Command{"p2p", "measure messages between pairs of ranks", Launch::kRanks, declare_p2p},
    Command{"tune", "measure every algorithm and write the table that auto reads", Launch::kRanks,
            declare_tune},
    Command{"train", "train a transformer over all ranks", Launch::kAnyRanks, declare_train},
    Command{"layouts", "train every legal layout and compare with one rank", Launch::kRanks,
            declare_layouts},
    Command{"sample", "text from a checkpoint", Launch::kAlone, declare_sample},
    Command{"export", "a checkpoint's weights as safetensors or a file of llm.c", Launch::kAlone,
            declare_export},
    Command{"verify", "prove schedules", Launch::kAlone, declare_verify},
    Command{"simulate", "time schedules on a described machine, drawn", Launch::kAlone,
            declare_simulate},
    Command{"explain", "teach one schedule: source, cost, what happens round by round",
            Launch::kAlone, declare_explain},
    Command{"plan", "rank the legal layouts of a model on a described machine", Launch::kAlone,
            declare_plan},
    Command{"doctor", "what may spoil runs here, each finding with its remedy", Launch::kAlone,
            declare_doctor},
    Command{"topo", "describe this machine: cores, caches, limits, memory bandwidth",
            Launch::kAnyRanks, declare_topo},
};

std::string list_of_commands() {
  std::string names;
  for (const Command& command : kCommands)
    names += (names.empty() ? "" : ", ") + std::string(command.name);
  return names;
}

std::string general_help() {
  std::string text =
      "Usage: sinew SUBCOMMAND [OPTIONS]      sinew SUBCOMMAND --help      sinew --version\n"
      "       mpirun -n P sinew SUBCOMMAND    for the subcommands that say so\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<10}{}{}\n", command.name, command.summary,
                        command.launch == Launch::kAlone ? "" : " (mpirun)");
  }
  return text;
}

const Command& find_command(const std::string& name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return command;
  }
  throw UsageError(fmt::format("unknown subcommand '{}': legal are {}", name, list_of_commands()));
}

int run_command(const Launcher& launcher, const std::vector<std::string>& arguments) {
  const bool first_rank = launcher.rank == 0;
  if (arguments.empty())
    throw UsageError("a subcommand is missing: legal are " + list_of_commands());
  const bool asks = arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help";
  if (asks && arguments.size() == 1) {
    if (first_rank) fmt::print("{}", general_help());
    return 0;
  }
  if (arguments[0] == "--version") {
    if (arguments.size() > 1)
      throw UsageError(fmt::format("--version and '{}': legal is --version alone", arguments[1]));
    if (first_rank) fmt::print("sinew {}\n", SINEW_VERSION);
    return 0;
  }
  if (asks) return run_command(launcher, {arguments[1], "--help"});
  const Command& command = find_command(arguments[0]);
  Args args{std::string(command.name), std::string(command.summary)};
  const Run run = command.declare(args);
  if (!args.parse(std::span(arguments).subspan(1))) {
    if (first_rank) fmt::print("{}", args.help());
    return 0;
  }
  if (command.launch == Launch::kRanks && !launcher.present) {
    (void)comm::launched_rank();  // throws where half of a launch is there
    throw UsageError(
        fmt::format("{} needs ranks and none were launched: start it as "
                    "mpirun -n P build/sinew {} ...",
                    command.name, command.name));
  }
  if (command.launch == Launch::kAlone && !first_rank) return 0;
  return run();
}

// Standard streams that the caller closed become ones that refuse every byte: the next file opened
// would take their number, and tables would be printed into it.
void occupy_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != descriptor) std::_Exit(1);
  }
}

int run_main(int argc, char** argv) {
  occupy_standard_streams();
  // Where a container has no /sys, hwloc, ours and MPI's, goes on with less; it need not say so
  // several times over.
  setenv("HWLOC_HIDE_ERRORS", "2", 0);
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the limit of its size is an error like a full disk
  const Launcher launcher = launcher_of_environment();
  try {
    const int code = run_command(launcher, std::vector<std::string>(argv + 1, argv + argc));
    if (std::fflush(stdout) != 0)
      throw Error(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
    // Of a table that was flushed row by row.
    if (std::ferror(stdout) != 0) throw Error("standard output was not written in full");
    return code;
  } catch (const UsageError& error) {
    exit_together(launcher.rank, fmt::format("sinew: {}", error.what()), error.exit_code());
  } catch (const comm::Error& error) {
    const std::string line = fmt::format("sinew: {}", error.what());
    if (error.cause() == comm::Cause::kPoisoned) exit_after_others(line, error.exit_code());
    // What a machine lacks is found at set-up, where all ranks agree on one text.
    if (error.cause() == comm::Cause::kResource)
      exit_together(launcher.rank, line, error.exit_code());
    exit_alone(line, error.exit_code());
  } catch (const std::bad_alloc&) {
    exit_together(launcher.rank, "sinew: out of memory", 1);
  } catch (const std::exception& error) {
    // Often all ranks have the same to say, such as a full disk.
    exit_together(launcher.rank, fmt::format("sinew: {}", error.what()), 1);
  }
}

}  // namespace
}  // namespace sinew::tools

int main(int argc, char** argv) { return sinew::tools::run_main(argc, argv); }
