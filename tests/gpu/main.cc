// Runs the tests; a race that no test expected fails the test that ran.
#include <gtest/gtest.h>

#include "tests/gpu/races.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  sinew::testing::fail_tests_on_races();
  return RUN_ALL_TESTS();
}
