// Bad input ends with exit code 2 and exactly one line on standard error, and nothing hangs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/process.h"

namespace sinew::test {
namespace {

struct Bad {
  std::string arguments;
  std::vector<std::string> names;  // what the line must name: the value, the rule, a legal value
};

void expect_refused(const Outcome& outcome, const Bad& bad) {
  EXPECT_FALSE(outcome.timed_out) << bad.arguments;
  EXPECT_EQ(outcome.exit_code, 2) << bad.arguments;
  EXPECT_EQ(count_lines(outcome.err), 1) << bad.arguments << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "") << bad.arguments;
  for (const std::string& name : bad.names) {
    EXPECT_NE(outcome.err.find(name), std::string::npos) << bad.arguments << ": " << outcome.err;
  }
}

const std::vector<Bad> kBad = {
    {"", {"subcommand", "topo"}},
    {"topp", {"'topp'", "topo"}},
    {"topo --jsn x", {"'--jsn'", "--json"}},
    {"topo extra", {"'extra'", "--json"}},
    {"topo --json", {"--json", "needs a value"}},
    {"topo --json /no/such/folder/x", {"/no/such/folder/x", "existing folder"}},
};

TEST(CommandLine, RefusesBadInputInOneLine) {
  for (const Bad& bad : kBad) expect_refused(run_sinew(bad.arguments), bad);
}

TEST(CommandLine, RefusesBadInputInOneLineForAllRanks) {
  const Bad bad = {"topo --jsn x", {"'--jsn'"}};
  for (const int ranks : {2, 4}) expect_refused(run_sinew_ranks(ranks, bad.arguments), bad);
}

TEST(CommandLine, HelpGoesToStandardOutputOnce) {
  for (const Outcome& outcome :
       {run_sinew("--help"), run_sinew("topo --help"), run_sinew_ranks(2, "topo --help")}) {
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    const std::size_t first = outcome.out.find("Usage");
    ASSERT_NE(first, std::string::npos);
    EXPECT_EQ(outcome.out.find("Usage", first + 1), std::string::npos);
  }
}

}  // namespace
}  // namespace sinew::test
