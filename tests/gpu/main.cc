// Runs the tests; a race that no test expected fails the test that ran.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/gpu/races.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  sinew::testing::fail_tests_on_races();
  const int result = RUN_ALL_TESTS();
  // At the program's end the detector would replace the result: it counts expected races, too.
  std::fflush(nullptr);
  if (sinew::testing::kRaceDetector) std::_Exit(result);
  return result;
}
