// tune: its table is what auto takes, and the guidelines find what is planted.
#include <gtest/gtest.h>

#include "tests/tools/json_text.h"
#include "tests/tools/process.h"
#include "tools/guidelines.h"

namespace sinew::test {
namespace {

using sched::Collective;
using tools::TimesByOp;

TimesByOp consistent() {
  return {{Collective::kAllReduce, {{8, 2.0}, {32, 4.0}}},
          {Collective::kReduce, {{8, 1.5}, {32, 3.0}}},
          {Collective::kBroadcast, {{8, 1.5}, {32, 3.0}}},
          {Collective::kReduceScatter, {{8, 1.0}, {32, 2.0}}},
          {Collective::kAllGather, {{8, 1.0}, {32, 2.0}}},
          {Collective::kBarrier, {{0, 1.0}}}};
}

TEST(Guidelines, ConsistentTimesViolateNone) {
  EXPECT_TRUE(tools::violations(consistent(), 1.0).empty());
}

TEST(Guidelines, EachPlantedFaultIsFound) {
  struct Planted {
    Collective op;
    std::int64_t bytes;
    double seconds;
    const char* guideline;
  };
  for (const Planted& planted : {
           Planted{Collective::kAllReduce, 32, 7.0, "all_reduce <= reduce + broadcast"},
           Planted{Collective::kAllReduce, 32, 5.0, "all_reduce <= reduce_scatter + all_gather"},
           Planted{Collective::kReduce, 32, 5.0, "reduce <= all_reduce"},
           Planted{Collective::kBroadcast, 32, 5.0, "broadcast <= all_reduce"},
           Planted{Collective::kBarrier, 0, 3.0, "barrier <= all_reduce"},
           Planted{Collective::kReduce, 8, 9.0, "reduce <= reduce of more bytes"},
           Planted{Collective::kReduceScatter, 32, 4.5,
                   "reduce_scatter <= 4 x reduce_scatter of 8 bytes"},
       }) {
    TimesByOp times = consistent();
    times[planted.op][planted.bytes] = planted.seconds;
    bool found = false;
    for (const tools::Violation& violation : tools::violations(times, 1.1)) {
      found = found || violation.guideline == planted.guideline;
      double allowed_s = 0;
      for (const tools::Term& term : violation.allowed)
        allowed_s += static_cast<double>(term.calls) * times.at(term.op).at(term.bytes);
      EXPECT_EQ(allowed_s, violation.allowed_s) << violation.guideline;
      EXPECT_EQ(times.at(violation.taken.op).at(violation.taken.bytes), violation.taken_s)
          << violation.guideline;
    }
    EXPECT_TRUE(found) << planted.guideline;
  }
}

TEST(Tune, WritesTheTableThatAutoReadsAndKeepsOtherWorlds) {
  const TestFolder folder;
  const std::string table = folder.write("table", "all_reduce 5 any ring\n");
  const Outcome tuned = run_sinew_ranks(
      2, "tune --bytes 8,4K --budget-ms 0.2 --out " + table + " --json " + folder.path("times"));
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_NE(folder.read("table").find("all_reduce 5 any ring"), std::string::npos);
  EXPECT_NE(tuned.out.find(" of the guidelines by more than 1.1"), std::string::npos);
  EXPECT_GT(json_lines(folder.read("times")).size(), 20U);
  const Outcome read =
      run_sinew_ranks(2, "coll --op all --bytes 8,4K --budget-ms 0.1 --selection " + table +
                             " --json " + folder.path("rows"));
  ASSERT_EQ(read.exit_code, 0) << read.err;
  for (const nlohmann::json& row : json_lines(folder.read("rows"))) {
    EXPECT_TRUE(
        row["reason"].get<std::string>().starts_with("measured fastest for 2 ranks over shm"))
        << row;
  }
}

TEST(Tune, AForcedTableChangesWhatAutoTakesAndItSaysWhy) {
  const TestFolder folder;
  const std::string table =
      folder.write("table", "all_reduce 2 64 ring\nall_reduce 2 any recursive_doubling\n");
  const Outcome outcome = run_sinew_ranks(
      2, "coll --bytes 8,4K --budget-ms 0.1 --check --explain-choice --selection " + table);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* line : {"from 8 B auto takes ring: measured",
                           "from 4 KiB auto takes recursive_doubling: measured"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\n" << outcome.out;
  }
}

TEST(Tune, ATableWithoutRowsForThisRunSaysSo) {
  const TestFolder folder;
  const std::string table =
      folder.write("table", "all_reduce 5 any ring\nbroadcast 2 any chain ucx\n");
  const Outcome outcome = run_sinew_ranks(
      2, "coll --op all_reduce,broadcast --bytes 8,4K --budget-ms 0.1 --selection " + table);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* op : {"all_reduce", "broadcast"}) {
    const std::string line = " has no row of " + std::string(op) + " for 2 ranks over shm";
    const std::size_t at = outcome.out.find(line);
    EXPECT_NE(at, std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find(line, at + 1), std::string::npos) << outcome.out;
  }
}

TEST(Tune, BadTablesAreOneLineOnAllRanks) {
  const TestFolder folder;
  const std::string bad = folder.write("bad", "all_reduce 2 any nope\n");
  for (const std::string& arguments :
       {"coll --bytes 8 --selection " + bad,
        std::string("coll --bytes 8 --selection /no/such/file"), "tune --bytes 8 --out " + bad,
        std::string("tune --bytes 8 --out /no/such/folder/x")}) {
    const Outcome outcome = run_sinew_ranks(2, arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(count_lines(outcome.err), 1) << arguments << "\n" << outcome.err;
  }
  EXPECT_EQ(folder.read("bad"), "all_reduce 2 any nope\n");
}

}  // namespace
}  // namespace sinew::test
