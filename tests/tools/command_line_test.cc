// Bad input ends with exit code 2 and exactly one line on standard error, and nothing hangs.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/tools/process.h"
#include "tools/command.h"

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

const std::string kText = SINEW_SOURCE_DIR "/tests/tools/process.h";  // any readable file will do

std::string train(const std::string& arguments) {
  return "train --data " + kText + " --seq 16 " + arguments;
}

// What one process finds out alone.
const std::vector<Bad> kBad = {
    {"", {"subcommand", "topo"}},
    {"topp", {"'topp'", "topo"}},
    {"topo --jsn x", {"'--jsn'", "--json"}},
    {"--version extra", {"--version", "'extra'"}},
    {"topo extra", {"'extra'", "--json"}},
    {"topo --json", {"--json", "needs a value"}},
    {"topo --json ''", {"--json", "needs a value"}},
    {"topo --json /tmp", {"'/tmp'", "name a file"}},
    {"topo --json /no/such/folder/x", {"/no/such/folder/x", "existing folder"}},
    {"coll", {"mpirun -n P"}},
    {"p2p", {"mpirun -n P"}},
    {"explain --world 0", {"--world 0", "1 to 64"}},
    {"explain --algo all --svg x.svg", {"--svg", "one schedule", "--algo all"}},
    {"explain --world 1.5", {"'1.5'", "whole number", "from 1 to 64"}},
    {"explain --root 100", {"--root 100", "0 to 3"}},
    {"explain --op reduce_scatter --algo halving,swing --world 3", {"halving", "swing", "3 ranks"}},
    {"explain --list --svg x.svg", {"--list", "--svg"}},
    {"explain --list --op all_gather", {"--list", "--op"}},
    {"explain --chunks 2", {"--chunks", "--op pipeline"}},
    {"explain --op pipeline --algo gpipe --root 1", {"--root", "collectives"}},
    {"topo --transport shm", {"--transport", "--ranks"}},
    {"topo --timeout 3", {"--timeout", "--ranks"}},
    {"verify --file x --op all_reduce", {"--file", "--op"}},
    {"verify --file x --world 3", {"--file", "--world"}},
    {"simulate --file x --world 3", {"--file", "--world"}},
    {"simulate --topology x --latency-us 3", {"--topology", "--latency-us"}},
    {"simulate --op pipeline --bytes 8", {"--bytes", "collectives"}},
    {"simulate --root 8", {"--root 8", "0 to 7"}},
    {"simulate --by 8", {"'--by'", "did you mean --bytes?"}},
    {"simulate --bytes -1", {"--bytes", "'-1'", "byte count"}},
    {"simulate --svg same --json ./same", {"--svg", "--json", "same"}},
    {"plan --memory x", {"--memory", "'x'"}},
    {"plan --ranks 8 --shard 3", {"--shard 3", "8 ranks", "divisors"}},
    {"plan --cp-mode ulysses", {"--cp-mode", "--cp-max 1"}},
    {"plan --shard 2 --zero-max 0", {"--shard", "--zero-max 0"}},
    {"simulate --root 1 --op all_reduce", {"--root", "broadcast"}},
    {"simulate --group 4 --algo ring", {"--group", "levels"}},
    {"explain --root 1", {"--root", "broadcast"}},
    {"verify --root 1 --op all_to_all", {"--root", "broadcast"}},
    {"verify --file /dev/zero", {"--file", "/dev/zero", "larger than"}},
    {"simulate --topology /dev/zero", {"--topology", "/dev/zero", "larger than"}},
    {"simulate --topology x --world 4", {"--topology", "--world"}},
    {"sample --checkpoint x --temperature 0 --top-k 3", {"--top-k", "--temperature 0"}},
    {"export --checkpoint x --to x.bin --dtype e5m2", {"'e5m2'", "f32, bf16, f64"}},
    {"simulate --bytes 99999999999999999999", {"99999999999999999999", "up to 1024 TiB"}},
    {train("--save-every 2"), {"--save-every", "--out"}},
    {train("--async-save"), {"--async-save", "--out"}},
    {train("--graph"), {"--graph", "--device"}},
    {"sample --checkpoint x --prompt a --prompt-tokens 1", {"--prompt", "--prompt-tokens"}},
    {"verify --op all_reduce --algo swing --world 3", {"swing", "power of two"}},
    {"verify --op reduce_scatter --algo halving --world 3,5", {"halving", "power of two"}},
    {"verify --op reduce_scatter --algo halving,swing --world 3", {"halving", "swing", "3"}},
    {"verify --op pipeline --algo zb-v --chunks 1", {"zb-v", "2"}},
    {"verify --root 16", {"--root 16", "0 to 15"}},
    {"verify --file /tmp", {"--file", "directory"}},
    {"explain --algo nope", {"'nope'", "ring"}},
    {"explain --op nope", {"'nope'", "all_reduce", "pipeline"}},
    {"explain --op pipeline --algo 1f1b --times 1,2", {"'1,2'", "forward,backward,weight"}},
    {"plan --model nope", {"'nope'", "gpt2-124m"}},
    {"plan --ranks 13 --batch 3", {"13 ranks", "3"}},
    {"plan --batch 99999999999999", {"--batch", "1 to 65536"}},
    {"plan --gflops nan", {"--gflops", "'nan'", "finite number"}},
    {"plan --ranks 99999999999999999999", {"--ranks", "out of range"}},
    {"verify --op nope", {"'nope'", "all_reduce", "pipeline"}},
    {"verify --world 0", {"'0'", "1 to 1024"}},
    {"verify --world 1:8:x2", {"'1:8:x2'", "1 to 1024"}},
    {"verify --world 4,", {"''", "1 to 1024"}},
    {"simulate --op pipeline --world 1024 --chunks 64 --microbatches 10000",
     {"--microbatches 10000", "forwards", "up to 4194304"}},
    {"simulate --world 256 --segments 4096 --bytes 64M", {"4096 segments", "at most"}},
    {"verify --file /no/such/file", {"--file", "/no/such/file", "No such file"}},
    {"verify --file " + kText, {"--file", "process.h", "line 1"}},
    {"simulate --topology " + kText, {"--topology", "process.h", "line"}},
    {"simulate --op reduce_scatter --algo halving --world 6", {"world 6", "power of two"}},
    {"simulate --bytes 8x", {"'8x'", "K, M, G or T"}},
    {train("--steps abc"), {"--steps", "'abc'", "whole number"}},
    {train("--lr fast"), {"--lr", "'fast'", "number"}},
    {train("--timeout x"), {"--timeout", "'x'", "0.1 to 86400"}},
    {train("--batch 0"), {"--batch 0", "at least 1"}},
    {train("--warmup 11 --steps 10"), {"warmup 11", "0 to 10"}},
    {train("--order tp,xx"), {"'xx'", "tp, cp, pp, dp"}},
    {train("--order tp,pp,tp"), {"tp twice", "tp,cp,pp,dp"}},
    {train("--microbatches -1"), {"--microbatches -1", "at least 0"}},
    {train("--log-every -1"), {"--log-every -1", "at least 0"}},
    {train("--shard -1"), {"--shard -1", "at least 0"}},
    {train("--tp 2 --pp 2"), {"4 ranks", "mpirun -n 4"}},
    {"sample", {"--checkpoint", "--out"}},
    {"sample --checkpoint /no/such/folder", {"/no/such/folder"}},
    {"export", {"--checkpoint", "--out"}},
    {"export --checkpoint /no/such/folder", {"--to", ".safetensors", ".bin"}},
    {"export --checkpoint /no/such/folder --to x.bin", {"/no/such/folder"}},
    {"export --checkpoint /no/such/folder --to x.npz", {"x.npz", ".safetensors, .bin"}},
    {"export --checkpoint /no/such/folder --to x.bin --dtype f64", {"'f64'", "f32, bf16"}},
    {train("--model /no/such/model.bin"), {"/no/such/model.bin"}},
};

// A token file with one token beyond a vocabulary of bytes, where few steps come by.
std::string outside(const TestFolder& folder) {
  constexpr std::int32_t kTokens = 2000;
  std::string text(1024, '\0');
  const std::int32_t header[] = {20240520, 1, kTokens};
  std::memcpy(text.data(), header, sizeof header);
  for (std::int32_t i = 0; i < kTokens; ++i) {
    const std::uint16_t token = i == 1500 ? 999 : static_cast<std::uint16_t>(i % 256);
    text.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  return folder.write("outside.bin", text);
}

// What a run finds out once the ranks have met; one rank meets itself fastest.
std::vector<Bad> bad_runs(const TestFolder& folder) {
  const std::string empty = folder.write("empty.txt", "");
  const std::string brief = folder.write("brief.txt", "too short");
  const std::string unknown = folder.write("unknown.bin", std::string(4001, '7'));
  folder.write("run/latest", "step-00000001");
  folder.write("broken/step-00000001/state.json", "{");
  folder.write("broken/step-00000001/model.safetensors", "12345678901234567890");
  folder.write("broken/step-00000001/optimizer.safetensors", "");
  return {
      {"train", {"--data", "text file"}},
      {"train --data /no/such/file", {"/no/such/file"}},
      {"train --data " + empty, {empty, "empty"}},
      {"train --data " + brief, {"9 tokens", "257"}},
      {"train --data " + unknown, {unknown, "4001 bytes", "uint16", "llm.c"}},
      {"train --data-format nope --data " + brief, {"'nope'", "jsonl", "megatron"}},
      {"train --tokenizer /no/such --data " + brief, {"/no/such/vocab.json", "No such file"}},
      {"train --seq 16 --data " + outside(folder), {"token 999", "position 1500", "256"}},
      {train("--out " + folder.path("run")), {"holds the checkpoints", "--resume"}},
      {train("--out " + brief), {brief, "folder"}},
      {train("--validation-fraction 2"), {"validation-fraction 2", "below 1"}},
      {train("--model nope"), {"'nope'", "byte-small"}},
      {train("--microbatches 3"), {"3 microbatches", "1, 2, 4, 8"}},
      {train("--resume " + folder.path("broken")), {"broken"}},
      {train("--resume /no/such/folder"), {"/no/such/folder"}},
      {train("--init " + brief), {brief}},
      {train("--dtype f8"), {"--dtype", "f8", "f32"}},
      {train("--lr -1"), {"--lr -1", "0 and more"}},
      {train("--clip -1"), {"--clip -1", "above 0"}},
      {train("--cp-mode x"), {"--cp-mode", "zigzag"}},
      {train("--schedule " + folder.path("run")), {"--schedule", "directory"}},
      {train("--batch 1000000000"), {"--batch 1000000000", "this machine has"}},
      {"simulate --topology " + folder.write("raw", "\x1b[2J\x80\n"),
       {"--topology", R"(\x1b[2J\x80)", "legal"}},
  };
}

// What several ranks find out together.
const std::vector<std::pair<int, Bad>> kBadTogether = {
    {2, {"topo --jsn x", {"'--jsn'"}}},
    {3, {"coll --op reduce_scatter --algo halving", {"halving", "world 3", "power of two"}}},
    {2, {"coll --bytes -1", {"--bytes", "'-1'"}}},
    {2, {"coll --bytes 8 --channels 4", {"--channels", "--device cuda"}}},
    {2, {"coll --bytes 8 --algo ring --explain-choice", {"--explain-choice", "auto"}}},
    {2, {"coll --schedule x --op all_gather", {"--schedule", "--op"}}},
    {2, {"coll --bytes 8 --factor 0.3", {"--factor 0.3", "powers of two"}}},
    {2, {"coll --bytes 8 --dtype i32 --factor 0.5", {"--factor 0.5", "i32", "whole numbers"}}},
    {2, {"coll --bytes 8 --reduce max --factor 2", {"--factor 2", "--reduce max"}}},
    {2, {"coll --op all_gather --bytes 8 --factor 2", {"--factor 2", "--op"}}},
    {2, {"tune --op nope", {"'nope'", "legal are all, all_reduce"}}},
    {2, {"tune --op pipeline", {"'pipeline'", "legal are all, all_reduce"}}},
    {2, {"coll --bytes 8 --algo ring --selection x", {"--selection", "auto"}}},
    {2, {"coll --bytes 8 --root 1", {"--root", "broadcast"}}},
    {2, {"coll --op all_gather --bytes 8 --reduce max", {"--reduce", "all_reduce"}}},
    {2, {"coll --op barrier --inplace", {"--inplace", "barrier"}}},
    {2, {"coll --bytes 8 --buffers symmetric --copies pull", {"--copies", "ordinary"}}},
    {2, {"tune --out /tmp", {"--out '/tmp'", "name a file"}}},
    {2, {"tune --out /no/such/x", {"--out '/no/such/x'", "existing folder"}}},
    {2, {"coll --bytes 1T", {"--bytes 1T", "this machine has"}}},
    {2, {"coll --bytes 8 --json /no/such/folder/x", {"/no/such/folder/x", "existing folder"}}},
    {2, {"coll --op broadcast --root 2", {"--root 2", "0 to 1"}}},
    {2, {"coll --dtype f32,", {"''", "bf16"}}},
    {2, {train("--out /proc/x"), {"--out", "/proc/x", "name a folder"}}},
    {2, {train("--out /proc"), {"--out", "/proc", "name a folder"}}},
    {2, {"coll --transport nope", {"'nope'", "shm"}}},
    {2, {"layouts --dtype f64,f16", {"'f16'", "f64", "bf16-sr"}}},
    {2, {"layouts --model nope", {"'nope'", "byte-tiny"}}},
    {2, {"layouts --fault wte", {"--fault 'wte'", "wte.weight, wpe.weight"}}},
    {2, {train("--zero 2 --reshard-after backward"), {"--zero 2", "legal: --zero 3"}}},
    {2, {train("--keep-last 2"), {"--keep-last", "without --out"}}},
    {2, {"layouts --model {}", {"key 'layers' is missing"}}},
    {3, {"layouts --model byte-tiny --batch 8 --seq 8", {"--batch 8", "multiples of 3"}}},
    {2, {"layouts --batch 1000000000", {"--batch 1000000000", "this machine has"}}},
    {2, {train("--pp 2 --schedule interleaved --chunks 999"), {"999 chunks", "chunks: 1 to"}}},
    {4, {train("--tp 3"), {"tp 3", "dp (the rest)", "4"}}},
    {3, {train("--tp 3"), {"tp 3", "heads", "1, 2, 4"}}},
};

// As in a container or chroot without /sys, of which hwloc would tell in lines of its own.
TEST(CommandLine, AMachineThatShowsNoTopologyIsNoLineOfItsOwn) {
  const TestFolder nothing;
  const std::string sinew = SINEW_BINARY_DIR "/sinew";
  const std::string root = "HWLOC_FSROOT=" + nothing.path("");
  expect_refused(run_process({"env", root, sinew, "train"}, 60000), {"train", {"--data"}});
  expect_refused(run_process({"env", root, SINEW_SOURCE_DIR "/tools/mpirun.sh", "-n", "2", sinew,
                              "topo", "--jsn"},
                             60000),
                 {"topo --jsn", {"'--jsn'"}});
}

TEST(CommandLine, RefusesBadInputInOneLine) {
  const TestFolder folder;
  std::vector<Bad> all = bad_runs(folder);
  all.insert(all.end(), kBad.begin(), kBad.end());
  std::vector<Outcome> outcomes(all.size());
  run_at_once(all.size(), [&](std::size_t i) { outcomes[i] = run_sinew(all[i].arguments); });
  for (std::size_t i = 0; i < all.size(); ++i) expect_refused(outcomes[i], all[i]);
}

TEST(CommandLine, RefusesBadInputInOneLineForAllRanks) {
  std::vector<Outcome> outcomes(kBadTogether.size());
  run_at_once(outcomes.size(), [&](std::size_t i) {
    outcomes[i] = run_sinew_ranks(kBadTogether[i].first, kBadTogether[i].second.arguments);
  });
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    expect_refused(outcomes[i], kBadTogether[i].second);
}

// Every command, as its options are declared.
struct Declared {
  const char* name;
  tools::Run (*declare)(tools::Args& args);
};
const std::vector<Declared> kDeclared = {
    {"coll", tools::declare_coll},         {"p2p", tools::declare_p2p},
    {"tune", tools::declare_tune},         {"train", tools::declare_train},
    {"layouts", tools::declare_layouts},   {"sample", tools::declare_sample},
    {"export", tools::declare_export},     {"verify", tools::declare_verify},
    {"simulate", tools::declare_simulate}, {"explain", tools::declare_explain},
    {"plan", tools::declare_plan},         {"doctor", tools::declare_doctor},
    {"topo", tools::declare_topo}};

TEST(CommandLine, EveryPrintedDefaultIsAccepted) {
  int options = 0;
  for (const Declared& command : kDeclared) {
    tools::Args listed(command.name, "");
    const tools::Run unused = command.declare(listed);
    EXPECT_EQ(listed.help().find("\n]"), std::string::npos) << command.name;
    for (const tools::Args::Shown& option : listed.shown()) {
      if (option.value.empty()) continue;
      tools::Args args(command.name, "");
      const tools::Run run = command.declare(args);  // holds what the options are bound to
      ++options;
      // Some have no effect without a flag of their command.
      std::vector<std::string> given = {option.name, option.value};
      if (std::string(command.name) == "topo") given.emplace_back("--ranks");
      EXPECT_NO_THROW(EXPECT_TRUE(args.parse(given))) << command.name << " " << option.name;
      EXPECT_TRUE(args.given(option.name));
    }
  }
  EXPECT_GT(options, 80);
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

TEST(CommandLine, ListsMayHaveSpacesAfterTheirCommas) {
  const Outcome plain = run_sinew("explain --op all_reduce,reduce --algo binomial,ring");
  const Outcome spaced = run_sinew("explain --op 'all_reduce, reduce' --algo ' binomial , ring'");
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(spaced.exit_code, 0) << spaced.err;
  EXPECT_EQ(spaced.out, plain.out);
}

// Variables of a launcher that has ended stay in a shell that it started.
TEST(CommandLine, SpeaksWhereALauncherLeftItsVariables) {
  for (const std::string& left :
       {std::string("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"),
        std::string("PMIX_SERVER_TMPDIR=/no/such OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"),
        std::string("PMI_RANK=1 PMI_SIZE=2 PMI_FD=99"),
        std::string("PMIX_RANK=1 PMIX_SERVER_TMPDIR=/no/such SLURM_STEP_NUM_TASKS=2"),
        std::string("SINEW_RANK=1 SINEW_WORLD=2 SINEW_MEET=/no/such")}) {
    for (const char* command : {"--help", "plan --ranks 2", "topo"}) {
      const Outcome outcome = run_process(
          {"bash", "-c", "exec env " + left + " " SINEW_BINARY_DIR "/sinew " + command}, 30000);
      EXPECT_EQ(outcome.exit_code, 0) << left << outcome.err;
      EXPECT_NE(outcome.out, "") << left << " " << command;
    }
  }
  for (const Outcome& outcome : {run_sinew_ranks(2, "plan --ranks 2"),
                                 run_process({SINEW_SOURCE_DIR "/tools/launch.sh", "-n", "2",
                                              SINEW_BINARY_DIR "/sinew", "plan", "--ranks", "2"},
                                             30000)}) {
    const std::size_t first = outcome.out.find("legal layouts");
    ASSERT_NE(first, std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out.find("legal layouts", first + 1), std::string::npos) << outcome.out;
  }
}

// As srun --mpi=pmix starts ranks: the first one alone speaks.
TEST(CommandLine, KnowsTheRanksOfSlurm) {
  const TestFolder folder;
  for (const int rank : {0, 1}) {
    const Outcome outcome =
        run_process({"env", "PMIX_RANK=" + std::to_string(rank), "SLURM_STEP_NUM_TASKS=2",
                     "SLURM_STEP_TASKS_PER_NODE=2", "PMIX_SERVER_TMPDIR=" + folder.path("."),
                     SINEW_BINARY_DIR "/sinew", "plan", "--ranks", "2"},
                    30000);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out.empty(), rank == 1) << outcome.out;
  }
}

}  // namespace
}  // namespace sinew::test
