// Runs the tests of tests/gpu that need no twin on a GPU.
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/device/runtime.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
