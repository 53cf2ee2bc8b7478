// Runs the tests of tests/gpu on kernels from PTX: test_ptx --folder=DIR [--weak], then
// GoogleTest's options.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "sched/base/error.h"
#include "tests/gpu/ptx/settings.h"

namespace {

sinew::ptx::Settings settings;

// False when an argument is not known.
bool read_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--folder=")) {
      settings.folder = argument.substr(9);
    } else if (argument == "--weak") {
      settings.weak = true;
    } else {
      std::fprintf(stderr,
                   "test_ptx: '%s' is not one of --folder=DIR, --weak and GoogleTest's options\n",
                   argv[i]);
      return false;
    }
  }
  return true;
}

}  // namespace

const sinew::ptx::Settings& sinew::ptx::current_settings() { return settings; }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!read_arguments(argc, argv)) return 2;
  try {
    sinew::ptx::Interpreter interpreter({settings.folder, settings.weak, {}});
    sinew::twin::Config config;
    config.interpreter = &interpreter;
    const sinew::twin::Scope scope(config);
    const int status = RUN_ALL_TESTS();
    std::printf("PTX: %llu launches, %.1f million instructions\n",
                static_cast<unsigned long long>(interpreter.launches()),
                static_cast<double>(interpreter.instructions()) * 1e-6);
    if (interpreter.overtaking_stores() == 0) return status;
    std::fprintf(stderr, "PTX: %llu stores may overtake loads of other blocks\n",
                 static_cast<unsigned long long>(interpreter.overtaking_stores()));
    return 1;
  } catch (const sinew::Error& error) {
    std::fprintf(stderr, "test_ptx: %s\n", error.what());
    return 2;
  }
}
