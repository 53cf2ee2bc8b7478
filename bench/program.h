// How a benchmark's own program ends: bad input is one line and exit code 2, any other failure one
// line and exit code 1.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "sched/base/error.h"

namespace sinew::bench {

inline int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace sinew::bench
