// Commands that start ranks: what they write and that runs are right.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "kernels/device/runtime.h"
#include "model/config.h"
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

// The v-forms by every algorithm, with parts of different sizes and with empty ones.
TEST(Coll, RunsEveryAlgorithmOnUnevenPartsWithoutAWrongElement) {
  const TestFolder folder;
  const std::vector<std::string> variants = {"ramp", "one", "ramp --inplace", "one --inplace"};
  run_at_once(variants.size(), [&](std::size_t i) {
    const bool inplace = variants[i].ends_with("--inplace");
    const std::string rows = folder.path(fmt::format("rows{}", i));
    const Outcome outcome = run_sinew_ranks(
        3, fmt::format("coll --op reduce_scatter,all_gather,gather,scatter{} --algo all --bytes "
                       "0,4,1000 --dtype f32 --check --baseline mpi --budget-ms 0.01 --parts {} "
                       "--buffers plain,symmetric --json {}",
                       inplace ? "" : ",all_to_all", variants[i], rows));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    std::set<std::string> ops;
    for (const nlohmann::json& row : json_lines(folder.read(fmt::format("rows{}", i)))) {
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_NE(row["parts"], "even") << row;
      EXPECT_TRUE(row["predicted_us"].is_null()) << row;
      EXPECT_FALSE(row["mpi_us"].is_null()) << row;
      ops.insert(row["op"]);
    }
    EXPECT_EQ(ops.size(), inplace ? 4U : 5U);
  });
}

TEST(Coll, OnTheDeviceChecksEveryAlgorithmAndNeverCallsTheTwinAGpu) {
  if (!device::properties().twin) GTEST_SKIP() << "this build has CUDA in place of the host twin";
  const TestFolder folder;
  const Outcome outcome =
      run_sinew_ranks(2,
                      "coll --device twin --op all --algo all --bytes 0,1000 --dtype bf16 "
                      "--check --budget-ms 0.01 --json " +
                          folder.path("rows"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("host twin stands in for a GPU"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("transport cuda_ipc: rank 0 on host twin"), std::string::npos);
  int copies = 0;
  std::set<std::string> ops;
  for (const nlohmann::json& row : json_lines(folder.read("rows"))) {
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["transport"], "cuda_ipc");
    EXPECT_TRUE(row["twin"].get<bool>());
    EXPECT_TRUE(row["algbw_GBps"].is_null() && row["busbw_GBps"].is_null()) << row;
    copies += row["algo"] == "copy_engine" ? 1 : 0;
    ops.insert(row["op"].get<std::string>());
  }
  EXPECT_EQ(copies, 2 * 2);
  EXPECT_EQ(ops.size(), static_cast<std::size_t>(sched::kCollectiveCount));
}

TEST(Coll, WhatADeviceDoesNotHaveIsRefusedInOneLine) {
  for (const auto& [arguments, word] : std::vector<std::pair<std::string, std::string>>{
           {"--device cuda --transport shm", "cuda_ipc"},
           {"--transport cuda_ipc", "--device cuda"},
           {"--protocol ll", "--device cuda"},
           {"--device twin --protocol nope", "ll128"},
           {"--device cuda --buffers symmetric", "plain"},
           {"--device cuda --baseline mpi", "none"},
           {"--device twin --algo nope", "one_shot"},
           {"--device twin --algo copy_engine", "all_gather"},
           {"--device gpu", "auto"}}) {
    const Outcome outcome = run_sinew_ranks(1, "coll --bytes 8 " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
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
    expect_keys(row, {"op",
                      "algo",
                      "transport",
                      "ranks",
                      "network_block_bytes",
                      "bytes",
                      "dtype",
                      "reduce",
                      "inplace",
                      "buffers",
                      "t_min_us",
                      "t_median_us",
                      "t_p99_us",
                      "algbw_GBps",
                      "busbw_GBps",
                      "wrong",
                      "predicted_us",
                      "bound_us",
                      "memory_bound_us",
                      "memory_fraction",
                      "path_bound_us",
                      "path_fraction",
                      "mpi_us",
                      "mpi_library",
                      "factor"});
    EXPECT_NE(row["mpi_library"].get<std::string>().find_first_of("0123456789"), std::string::npos);
    EXPECT_TRUE(row["factor"].is_null());
    EXPECT_GT(row["mpi_us"].get<double>(), 0);
    EXPECT_LE(row["t_min_us"].get<double>(), row["t_median_us"].get<double>());
    EXPECT_LE(row["t_median_us"].get<double>(), row["t_p99_us"].get<double>());
    EXPECT_TRUE(row["inplace"].get<bool>());
  }
  EXPECT_EQ(rows[0]["buffers"], "plain");
  EXPECT_EQ(rows[1]["buffers"], "symmetric");
}

TEST(Coll, PreMultipliedSumsAreExactInEveryType) {
  const TestFolder folder;
  for (const std::string arguments : {"--dtype f64,f32,f16,bf16,e4m3,e5m2 --factor 0.5",
                                      "--dtype f32,e5m2,i8,u8,i32,u32,i64,u64 --factor 3"}) {
    const Outcome outcome = run_sinew_ranks(
        3, "coll --op all_reduce,reduce_scatter,reduce --bytes 30,9000 --check --budget-ms 0.1 " +
               arguments + " --json " + folder.path("rows"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    for (const nlohmann::json& row : json_lines(folder.read("rows"))) {
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_FALSE(row["factor"].is_null()) << row;
    }
  }
}

TEST(Coll, MeasuresAScheduleFromAFileAndRefusesAChangedOne) {
  const TestFolder folder;
  sched::Schedule ring =
      sched::generate(sched::find_algorithm(sched::Collective::kAllReduce, "ring"), {.world = 3});
  const std::string file = folder.write("ring.txt", sched::print(ring));
  const std::string arguments = " --algo auto --bytes 0,4096 --check --budget-ms 1 ";
  const Outcome outcome =
      run_sinew_ranks(3, "coll --schedule " + file + arguments + "--json " + folder.path("rows"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  int own = 0;
  for (const nlohmann::json& row : json_lines(folder.read("rows"))) {
    EXPECT_EQ(row["wrong"], 0) << row;
    own += row["algo"] == "file: ring" ? 1 : 0;
  }
  EXPECT_EQ(own, 2);

  ring.programs[1].steps.front().peer = 0;
  const std::string bad = folder.write("bad.txt", sched::print(ring));
  const Outcome refused = run_sinew_ranks(3, "coll --schedule " + bad + arguments);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find(bad + "' is wrong: "), std::string::npos) << refused.err;
  const Outcome unfit = run_sinew_ranks(2, "coll --schedule " + file + arguments);
  EXPECT_EQ(unfit.exit_code, 2);
  EXPECT_NE(unfit.err.find("is for 3 ranks"), std::string::npos) << unfit.err;
}

TEST(Coll, HasNoColumnThatIsEmptyInAllRows) {
  const Outcome plain = run_sinew_ranks(1, "coll --bytes 8 --budget-ms 0.1");
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  for (const char* column : {"mem %", "MPI", "wrong", "1 ranks", "- GB/s"})
    EXPECT_EQ(plain.out.find(column), std::string::npos) << plain.out;
  for (const char* column : {"predicted us", "bound us"})
    EXPECT_NE(plain.out.find(column), std::string::npos) << plain.out;
  const Outcome full = run_sinew_ranks(2, "coll --bytes 8 --budget-ms 0.1 --check --baseline mpi");
  for (const char* column : {"MPI us", "wrong"})
    EXPECT_NE(full.out.find(column), std::string::npos) << full.out;
}

// A user who wants so many repetitions gets so many, whatever the call takes.
TEST(Coll, TakesExactlyTheIterationsAskedForAndAveragesTheBusBandwidth) {
  const TestFolder folder;
  for (const int iterations : {1, 3, 17}) {
    const std::string arguments = fmt::format(
        "coll --bytes 8,64K --iterations {} --warmup 2 --json {}", iterations, folder.path("rows"));
    const Outcome outcome = run_sinew_ranks(2, arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("average bus bandwidth of 2 rows: "), std::string::npos)
        << outcome.out;
    for (const nlohmann::json& row : json_lines(folder.read("rows")))
      EXPECT_EQ(row["iterations"].get<int>() * row["batch"].get<int>(), iterations);
  }
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

TEST(P2p, APairMayMeasureForLongerThanRanksWaitForEachOther) {
  const Outcome outcome = run_sinew_ranks(3, "p2p --bytes 4M --budget-ms 1000 --timeout 2.5");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Launch, RanksMeetOverSocketsWithoutMpiAndEndTogether) {
  const std::string launch = std::string(SINEW_SOURCE_DIR) + "/tools/launch.sh";
  const std::string sinew = std::string(SINEW_BINARY_DIR) + "/sinew";
  const Outcome good = run_process({launch, "-n", "3", sinew, "coll", "--op", "all_reduce",
                                    "--bytes", "8,1000", "--check", "--budget-ms", "1"},
                                   30000);
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_NE(good.out.find("3 ranks over shm"), std::string::npos) << good.out;
  const Outcome bad = run_process({launch, "-n", "3", sinew, "coll", "--op", "nope"}, 30000);
  EXPECT_EQ(bad.exit_code, 2) << bad.err;
  EXPECT_EQ(run_process({launch, "-n", "0", sinew}, 10000).exit_code, 2);
  const Outcome without_mpi =
      run_process({launch, "-n", "2", sinew, "coll", "--bytes", "8", "--baseline", "mpi"}, 30000);
  EXPECT_EQ(without_mpi.exit_code, 2);
  EXPECT_EQ(count_lines(without_mpi.err), 1) << without_mpi.err;
  EXPECT_NE(without_mpi.err.find("mpirun"), std::string::npos) << without_mpi.err;
  for (const std::string rank : {"SINEW_RANK=x SINEW_WORLD=2", "SINEW_RANK=5 SINEW_WORLD=2",
                                 "SINEW_RANK=0 SINEW_WORLD=-1"}) {
    const Outcome alone = run_process(
        {"bash", "-c", rank + " SINEW_MEET=/tmp " + sinew + " coll --bytes 8 --timeout 2"}, 30000);
    EXPECT_EQ(alone.exit_code, 2) << rank;
    EXPECT_NE(alone.err.find("SINEW_"), std::string::npos) << alone.err;
  }
}

TEST(Launch, WithoutAFolderToMeetInIsRefused) {
  const std::string launch = std::string(SINEW_SOURCE_DIR) + "/tools/launch.sh";
  const std::string coll = std::string(SINEW_BINARY_DIR) + "/sinew coll --bytes 8";
  const Outcome outcome =
      run_process({"bash", "-c", "TMPDIR=/no/such " + launch + " -n 2 " + coll}, 30000);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
}

// In every command that meets ranks, also one that may be alone.
TEST(Launch, HalfALaunchNamesWhatIsSetAndWhatIsLegal) {
  const TestFolder folder;
  const std::string train = "train --model byte-tiny --seq 16 --batch 1 --steps 1 --data " +
                            folder.write("text.txt", std::string(600, 'a'));
  for (const std::string set : {"SINEW_RANK=abc", "SINEW_WORLD=2", "SINEW_RANK=0 SINEW_WORLD=2",
                                "SINEW_RANK=0 SINEW_MEET=/tmp"}) {
    for (const std::string& command : {std::string("coll --bytes 8"), train}) {
      const Outcome outcome =
          run_process({"bash", "-c", set + " " SINEW_BINARY_DIR "/sinew " + command}, 30000);
      EXPECT_EQ(outcome.exit_code, 2) << set << " " << command;
      EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
      EXPECT_NE(outcome.err.find(set.substr(0, set.find('=') + 1) + "'"), std::string::npos)
          << outcome.err;
      EXPECT_NE(outcome.err.find("legal are SINEW_WORLD from 1"), std::string::npos) << outcome.err;
    }
  }
}

// Root may do everything, so another user's ranks are started where that is possible.
TEST(Launch, RanksMeetWhateverTheUmask) {
  const std::string as_nobody =
      geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : "";
  const TestFolder folder;  // which anybody may reach, unlike the tree
  std::filesystem::copy(SINEW_SOURCE_DIR "/tools/launch.sh", folder.path("launch.sh"));
  std::filesystem::copy(SINEW_BINARY_DIR "/sinew", folder.path("sinew"));
  std::filesystem::permissions(folder.path("."), std::filesystem::perms(0755));
  const Outcome outcome =
      run_process({"bash", "-c",
                   "umask 777; exec " + as_nobody +
                       "./launch.sh -n 2 ./sinew coll --bytes 8,1M --budget-ms 0.1 --check"},
                  30000, folder.path("."));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
}

// The bound is of one call by itself, and what takes less says so.
TEST(Coll, SaysThatCallsOverlapWhereATimeIsBelowItsBound) {
  const TestFolder folder;
  for (const char* op : {"broadcast", "all_reduce"}) {
    const Outcome outcome = run_sinew_ranks(
        3, fmt::format("coll --op {} --algo all --bytes 8,4K --budget-ms 1 --json {}", op,
                       folder.path("rows")));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::vector<nlohmann::json> rows = json_lines(folder.read("rows"));
    const bool below = std::ranges::any_of(rows, [](const nlohmann::json& row) {
      return row["t_median_us"].get<double>() < row["bound_us"].get<double>();
    });
    EXPECT_EQ(outcome.out.find("times below bound us: ") != std::string::npos, below)
        << outcome.out;
  }
}

TEST(Train, OnTheTwinLearnsAndNeverCallsItAGpu) {
  if (!device::properties().twin) GTEST_SKIP() << "this build has CUDA in place of the host twin";
  const TestFolder folder;
  const std::string arguments =
      "train --model byte-small --seq 8 --batch 2 --steps 2 --dtype bf16 "
      "--eval-windows 1 --data " +
      folder.write("text", std::string(2000, 'a')) + " ";
  const Outcome twin =
      run_sinew_ranks(2, arguments + "--tp 2 --device twin --out " + folder.path("run"));
  ASSERT_EQ(twin.exit_code, 0) << twin.err;
  EXPECT_NE(twin.out.find("device: the host twin stands in"), std::string::npos) << twin.out;
  EXPECT_NE(twin.out.find("beside measured (rank 0, host twin)"), std::string::npos) << twin.out;
  EXPECT_EQ(nlohmann::json::parse(folder.read("run/summary.json"))["device"], "host twin");

  const Outcome chosen = run_sinew_ranks(1, arguments + "--device auto");
  ASSERT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_NE(chosen.out.find("device: cpu, since this build has no CUDA"), std::string::npos);

  const Outcome named = run_sinew_ranks(2, arguments + "--tp 2 --device cuda");
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_EQ(count_lines(named.err), 1) << named.err;
  EXPECT_NE(named.err.find("--preset cuda"), std::string::npos) << named.err;

  const Outcome wide = run_sinew_ranks(1, arguments + "--dtype f32 --device twin");
  EXPECT_EQ(wide.exit_code, 2);
  EXPECT_EQ(count_lines(wide.err), 1) << wide.err;
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

TEST(Doctor, GivesEachFindingThatIsNotGoodARemedy) {
  const TestFolder folder;
  ASSERT_EQ(run_sinew("doctor --json " + folder.path("findings")).exit_code, 0);
  const std::vector<nlohmann::json> findings = json_lines(folder.read("findings"));
  std::set<std::string> names;
  for (const nlohmann::json& finding : findings) {
    expect_keys(finding, {"name", "good", "found"});
    EXPECT_EQ(finding["good"].get<bool>(), !finding.contains("remedy")) << finding;
    names.insert(finding["name"]);
  }
  for (const char* name :
       {"cores", "instruction sets", "memory", "/dev/shm", "copies between processes", "open files",
        "locked memory", "MPI", "UCX", "RDMA verbs", "CUDA"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(Doctor, SeesTheLimitsItIsRunUnder) {
  const TestFolder folder;
  const std::string sinew = SINEW_BINARY_DIR "/sinew";
  const Outcome outcome = run_process({"bash", "-c",
                                       "ulimit -n 64; ulimit -l 64; PATH=/no/such exec " + sinew +
                                           " doctor --json " + folder.path("findings")},
                                      10000);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const nlohmann::json& finding : json_lines(folder.read("findings"))) {
    const std::string name = finding["name"];
    if (name != "open files" && name != "locked memory" && name != "MPI") continue;
    EXPECT_FALSE(finding["good"].get<bool>()) << finding;
    EXPECT_TRUE(outcome.out.find(finding["remedy"].get<std::string>()) != std::string::npos);
  }
}

TEST(Plan, SaysWhichLayoutsFitAMemoryLimitAndPutsThemFirst) {
  const TestFolder folder;
  ASSERT_EQ(run_sinew("plan --model gpt2-124m --ranks 8 --batch 8 --memory 1300M --json " +
                      folder.path("plans"))
                .exit_code,
            0);
  constexpr double kLimitBytes = 1300.0 * 1024 * 1024;
  bool fits = true;
  int fitting = 0;
  const std::vector<nlohmann::json> plans = json_lines(folder.read("plans"));
  for (const nlohmann::json& plan : plans) {
    EXPECT_EQ(plan["fits"].get<bool>(), plan["memory_bytes"].get<double>() <= kLimitBytes) << plan;
    EXPECT_TRUE(fits || !plan["fits"].get<bool>()) << plan;
    fits = plan["fits"];
    fitting += fits ? 1 : 0;
  }
  EXPECT_GT(fitting, 0);
  EXPECT_LT(fitting, static_cast<int>(plans.size()));
}

TEST(Plan, ListsLegalLayoutsThatFitBestFirst) {
  const TestFolder folder;
  ASSERT_EQ(run_sinew("plan --model byte-small --ranks 4 --batch 8 --json " + folder.path("plans"))
                .exit_code,
            0);
  const std::vector<nlohmann::json> plans = json_lines(folder.read("plans"));
  ASSERT_GT(plans.size(), 3U);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const nlohmann::json& plan = plans[i];
    EXPECT_EQ(plan["tp"].get<int>() * plan["cp"].get<int>() * plan["pp"].get<int>() *
                  plan["dp"].get<int>(),
              4);
    EXPECT_TRUE(i == 0 || plan["step_s"].get<double>() >= plans[i - 1]["step_s"].get<double>())
        << i;
  }
}

// What plan says of a family's weights is what its shape has: Llama's differ from GPT-2's of the
// same sizes. And what it calls legal trains as it says.
TEST(Plan, KnowsBothFamiliesAndWhatTrainIsToBeTold) {
  const TestFolder folder;
  const std::string data = folder.write("text", std::string(4000, 'a'));
  for (const std::string model : {"byte-tiny", "llama-tiny"}) {
    const std::string request = fmt::format(
        "plan --model {} --ranks 2 --batch 4 --seq 16 --dtype bf16 --recompute selective "
        "--sequence-parallel --zero-max 3 --cp-max 2 --json {}",
        model, folder.path("plans"));
    const Outcome planned = run_sinew(request);
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const sched::ModelShape shape = model::shape_of(model::load_config(model));
    const std::vector<nlohmann::json> plans = json_lines(folder.read("plans"));
    std::set<std::string> kinds;
    for (const nlohmann::json& plan : plans) {
      if (plan["dp"] == 2 && plan["zero"] == 0) {
        EXPECT_EQ(plan["static_bytes"].get<std::int64_t>(), 18 * sched::parameter_count(shape));
      }
      // One of each kind of layout is trained.
      const std::string kind = fmt::format("{} {} {}", plan["tp"].get<int>(), plan["cp"].get<int>(),
                                           plan["pp"].get<int>());
      if (!kinds.insert(kind).second) continue;
      const std::string arguments = fmt::format("train {} --data {} --steps 1 --eval-windows 1",
                                                plan["train"].get<std::string>(), data);
      const Outcome trained = run_sinew_ranks(2, arguments);
      EXPECT_EQ(trained.exit_code, 0) << arguments << trained.err;
    }
    EXPECT_EQ(kinds.size(), 4U);
  }
}

// What a script finds in a record is what tools/README.md says is there.
TEST(Records, EveryKeyIsDocumented) {
  const TestFolder folder;
  std::ifstream file(SINEW_SOURCE_DIR "/tools/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  const std::string model = "--model byte-tiny --seq 8 --batch 4";
  const std::vector<std::pair<int, std::string>> commands = {
      {2, "coll --bytes 8 --budget-ms 0.1 --check --baseline mpi"},
      {1, "coll --bytes 8 --budget-ms 0.1 --device twin"},
      {2, "p2p --bytes 8 --budget-ms 0.1"},
      {0, "verify --world 2 --microbatches 2"},
      {0, "simulate --world 2 --bytes 8"},
      {0, "simulate --op pipeline --algo 1f1b --world 2"},
      {0, "explain --world 2"},
      {0, "explain --op pipeline --algo 1f1b --world 2"},
      {0, "explain --list"},
      {0, "plan --ranks 2 " + model},
      {0, "doctor"},
      {0, "topo"},
      {2, "topo --ranks"},
      {2, "tune --op barrier,all_reduce --bytes 8 --budget-ms 0.1 --out " + folder.path("table")},
      {2, "layouts --sample 1 --steps 1 --dtype f64"}};
  for (const auto& [ranks, command] : commands) {
    const std::string arguments = command + " --json " + folder.path("rows");
    const Outcome outcome = ranks > 0 ? run_sinew_ranks(ranks, arguments) : run_sinew(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << command << outcome.err;
    const std::string name = command.substr(0, command.find(' '));
    const std::size_t row = readme.find("\n| " + name + " | ");
    ASSERT_NE(row, std::string::npos) << name;
    const std::string keys = readme.substr(row, readme.find('\n', row + 1) - row);
    for (const nlohmann::json& line : json_lines(folder.read("rows"))) {
      for (const auto& [key, value] : line.items())
        EXPECT_NE(keys.find("`" + key + "`"), std::string::npos) << name << ": " << key;
    }
  }
}

}  // namespace
}  // namespace sinew::test
