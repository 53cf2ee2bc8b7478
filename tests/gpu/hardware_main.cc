// Runs the tests of tests/gpu that need no twin on a GPU; says in one line why it does not where
// there is none.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/device/runtime.h"

namespace {

// Asked in a process of its own: tests that fork must be the first to touch CUDA in theirs.
bool there_is_a_device() {
  const pid_t child = fork();
  if (child == 0) {
    const std::string why = sinew::device::unavailable();
    if (!why.empty()) std::fprintf(stderr, "test_gpu_hardware: %s\n", why.c_str());
    std::fflush(stderr);
    _exit(why.empty() ? 0 : 1);
  }
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // What unavailable() sets before CUDA begins, here only in the process that asks.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  if (!::testing::GTEST_FLAG(list_tests) && !there_is_a_device()) return 1;
  return RUN_ALL_TESTS();
}
