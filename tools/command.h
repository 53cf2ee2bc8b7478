// Command: one row of the command line's table (sinew.cc). Adding a subcommand: a file cmd_NAME.cc
// that defines its declare function, a declaration here and a row in the table.
#pragma once

#include <functional>
#include <string_view>

#include "tools/args.h"

namespace sinew::tools {

// Runs the subcommand after its options were parsed. Returns the exit code; throws Error.
using Run = std::function<int()>;

enum class Launch {
  kAlone,    // one process does all; under mpirun only the first rank works
  kRanks,    // started by mpirun; refused without it
  kAnyRanks  // started by mpirun or, with one rank, without it
};

struct Command {
  std::string_view name;
  std::string_view summary;
  Launch launch;
  // Binds the options and returns what runs with them.
  Run (*declare)(Args& args);
};

Run declare_coll(Args& args);
Run declare_p2p(Args& args);
Run declare_tune(Args& args);
Run declare_train(Args& args);
Run declare_layouts(Args& args);
Run declare_sample(Args& args);
Run declare_export(Args& args);
Run declare_verify(Args& args);
Run declare_simulate(Args& args);
Run declare_explain(Args& args);
Run declare_plan(Args& args);
Run declare_doctor(Args& args);
Run declare_topo(Args& args);

}  // namespace sinew::tools
