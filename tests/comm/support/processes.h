// Ranks as forked processes, without mpirun, for tests in which ranks die, stop or never come.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/bootstrap.h"

namespace sinew::comm::testing {

struct Outcome {
  int status = 0;    // as of waitpid
  std::string text;  // what the body returned or the exception that left it said
  bool threw = false;
  [[nodiscard]] bool killed() const;
};

// Runs body in `world` processes and waits for all. A body that returns ends its process with 0.
[[nodiscard]] std::vector<Outcome> run_processes(
    int world, const std::function<std::string(Bootstrap&)>& body);

}  // namespace sinew::comm::testing
