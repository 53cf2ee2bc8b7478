// README.md's figures are those of bench/results and of the program: nobody writes them by hand.
#include <gtest/gtest.h>

#include "tests/tools/process.h"

namespace sinew::test {
namespace {

bool has_python() { return run_process({"python3", "--version"}, 10000).exit_code == 0; }

Outcome report(const std::string& root, const std::string& arguments) {
  return run_process(
      {"bash", "-c",
       "SINEW=" SINEW_BINARY_DIR "/sinew exec python3 " + root + "/tools/report.py " + arguments},
      20000);
}

TEST(Report, ReadmeSaysWhatWasMeasuredAndGenerated) {
  if (!has_python()) GTEST_SKIP() << "needs python3";
  const Outcome outcome = report(SINEW_SOURCE_DIR, "--check");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Report, AChangedFigureIsFoundAndMended) {
  if (!has_python()) GTEST_SKIP() << "needs python3";
  const TestFolder folder;
  const std::string copy = folder.path("tree");
  const Outcome copied =
      run_process({"bash", "-c",
                   "cd " SINEW_SOURCE_DIR " && mkdir -p " + copy + "/tools " + copy + "/sched " +
                       copy + "/kernels " + copy + "/bench && cp sched/README.md " + copy +
                       "/sched && cp kernels/README.md " + copy + "/kernels && cp README.md " +
                       copy + " && cp bench/README.md " + copy + "/bench && cp tools/*.py " + copy +
                       "/tools && cp -r bench/results " + copy +
                       "/bench && sed -i 's/proved for 64/proved for 65/; s/ 8 B | 0/ 8 B | 7/' " +
                       copy + "/README.md"},
                  10000);
  ASSERT_EQ(copied.exit_code, 0) << copied.err;
  const Outcome found = report(copy, "--check");
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_NE(found.err.find("verify"), std::string::npos) << found.err;
  EXPECT_NE(found.err.find("coll"), std::string::npos) << found.err;
  EXPECT_EQ(report(copy, "").exit_code, 0);
  EXPECT_EQ(report(copy, "--check").exit_code, 0);
}

}  // namespace
}  // namespace sinew::test
