// Commands that start ranks: what they write and that runs are right.
#include <gtest/gtest.h>

#include <set>

#include "sched/collective/registry.h"
#include "tests/tools/json_text.h"
#include "tests/tools/process.h"

namespace sinew::test {
namespace {

void expect_keys(const nlohmann::json& record, const std::vector<std::string>& wanted) {
  for (const std::string& key : wanted)
    EXPECT_TRUE(record.contains(key)) << key << " in " << record;
}

TEST(Coll, RunsEveryAlgorithmOfEveryOperationWithoutAWrongElement) {
  const TestFolder folder;
  const Outcome outcome =
      run_sinew_ranks(3,
                      "coll --op all --algo all --bytes 0,4,1000 --dtype f32,bf16 --check "
                      "--budget-ms 0.01 --json " +
                          folder.path("rows"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::set<std::string> seen;
  for (const nlohmann::json& row : json_lines(folder.read("rows"))) {
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["ranks"], 3);
    seen.insert(row["op"].get<std::string>() + " " + row["algo"].get<std::string>());
  }
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (!row.refuse({.world = 3}).empty()) continue;
    EXPECT_TRUE(seen.contains(std::string(sched::name_of(row.op)) + " " + std::string(row.name)))
        << row.name;
  }
}

TEST(Coll, WritesTheKeysThatScriptsDependOn) {
  const TestFolder folder;
  const Outcome outcome =
      run_sinew_ranks(2,
                      "coll --bytes 1024 --baseline mpi --inplace --buffers plain,symmetric "
                      "--check --budget-ms 1 --json " +
                          folder.path("rows"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<nlohmann::json> rows = json_lines(folder.read("rows"));
  ASSERT_EQ(rows.size(), 2U);
  for (const nlohmann::json& row : rows) {
    expect_keys(row, {"op", "algo", "transport", "ranks", "bytes", "dtype", "reduce", "inplace",
                      "buffers", "t_min_us", "t_median_us", "t_p99_us", "algbw_GBps", "busbw_GBps",
                      "wrong", "predicted_us", "bound_us", "mpi_us"});
    EXPECT_GT(row["mpi_us"].get<double>(), 0);
    EXPECT_LE(row["t_min_us"].get<double>(), row["t_median_us"].get<double>());
    EXPECT_LE(row["t_median_us"].get<double>(), row["t_p99_us"].get<double>());
    EXPECT_TRUE(row["inplace"].get<bool>());
  }
  EXPECT_EQ(rows[0]["buffers"], "plain");
  EXPECT_EQ(rows[1]["buffers"], "symmetric");
}

TEST(P2p, MeasuresEachPair) {
  const TestFolder folder;
  const Outcome outcome =
      run_sinew_ranks(3, "p2p --pairs all --bytes 8 --budget-ms 1 --json " + folder.path("rows"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<nlohmann::json> rows = json_lines(folder.read("rows"));
  ASSERT_EQ(rows.size(), 3U);
  for (const nlohmann::json& row : rows) EXPECT_GT(row["latency_us"].get<double>(), 0);
}

TEST(Train, WritesMetricsSummaryAndACheckpointThatSamplesTheSameTextEachTime) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  const std::string data = folder.write("text.txt", text);
  const std::string run = folder.path("run");
  const Outcome outcome =
      run_sinew_ranks(2, "train --model byte-tiny --data " + data +
                             " --tp 2 --seq 16 --steps 3 --eval-windows 2 --out " + run);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("validation loss"), std::string::npos);

  const std::vector<nlohmann::json> steps = json_lines(folder.read("run/metrics.jsonl"));
  ASSERT_EQ(steps.size(), 3U);
  for (const nlohmann::json& step : steps) {
    expect_keys(step, {"step", "loss", "grad_norm", "lr", "tokens_per_s", "step_ms"});
  }
  expect_keys(nlohmann::json::parse(folder.read("run/summary.json")),
              {"compared", "loss", "validation_loss"});

  const Outcome first = run_sinew("sample --checkpoint " + run + " --prompt the --tokens 20");
  const Outcome second = run_sinew("sample --checkpoint " + run + " --prompt the --tokens 20");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("the"));
  EXPECT_EQ(first.out.size(), 3U + 20U + 1U);
  EXPECT_EQ(first.out, second.out);
}

TEST(Topo, NamesWhatAMachineRecordNeeds) {
  const TestFolder folder;
  ASSERT_EQ(run_sinew("topo --json " + folder.path("machine")).exit_code, 0);
  const std::vector<nlohmann::json> lines = json_lines(folder.read("machine"));
  ASSERT_EQ(lines.size(), 1U);
  expect_keys(lines[0],
              {"processor", "cores", "usable_cores", "memory_bytes", "vector_sets", "memory_GBps"});
}

}  // namespace
}  // namespace sinew::test
