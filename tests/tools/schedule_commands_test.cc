// verify and simulate over the registries and over files: what they print, write and refuse.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sched/collective/registry.h"
#include "sched/pipeline/schedule.h"
#include "tests/tools/json_text.h"
#include "tests/tools/process.h"

namespace sinew::test {
namespace {

TEST(Verify, ProvesEveryRowOfBothRegistries) {
  const TestFolder folder;
  const Outcome outcome =
      run_sinew("verify --world 1:6 --microbatches 4 --json " + folder.path("facts"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const std::size_t rows = sched::algorithms().size() + sched::pipe_algorithms().size();
  EXPECT_EQ(json_lines(folder.read("facts")).size(), rows);
}

TEST(Verify, ProvesAScheduleFromAFileAndShowsWhereAChangedOneBreaks) {
  const TestFolder folder;
  const sched::Schedule ring =
      sched::generate(sched::find_algorithm(sched::Collective::kAllReduce, "ring"), {.world = 3});
  const std::string file = folder.write("ring.txt", sched::print(ring));
  EXPECT_EQ(run_sinew("verify --file " + file).exit_code, 0);
  EXPECT_EQ(run_sinew("simulate --file " + file).exit_code, 0);

  sched::Schedule broken = ring;
  broken.programs[1].steps.front().peer = 0;
  const std::string bad = folder.write("broken.txt", sched::print(broken));
  const Outcome outcome = run_sinew("verify --file " + bad);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(count_lines(outcome.err), 1);
  EXPECT_NE(outcome.out.find(bad), std::string::npos) << outcome.out;
}

TEST(Verify, InsertsTheMessagesThatAPipelineFileLeavesOut) {
  const TestFolder folder;
  const std::string file = folder.write("two.txt",
                                        "pipeline two ranks 2 chunks 1 microbatches 1\n"
                                        "rank 0: F0.0 B0.0\nrank 1: F1.0 B1.0\n");
  EXPECT_EQ(run_sinew("verify --file " + file).exit_code, 0);
  const std::string bad = folder.write("bad.txt",
                                       "pipeline bad ranks 2 chunks 1 microbatches 1\n"
                                       "rank 0: B0.0 F0.0\nrank 1: F1.0 B1.0\n");
  EXPECT_EQ(run_sinew("verify --file " + bad).exit_code, 1);
  const Outcome simulated = run_sinew("simulate --file " + bad);
  EXPECT_EQ(simulated.exit_code, 2);
  EXPECT_NE(simulated.err.find("is wrong"), std::string::npos) << simulated.err;
}

// What it says against a file without messages is about the file, not about messages it may leave
// out.
TEST(Verify, NamesTheFaultOfAPipelineWithoutMessages) {
  const TestFolder folder;
  const std::string file =
      folder.write("hand.txt",
                   "pipeline hand ranks 2 chunks 1 microbatches 2\n"
                   "rank 0: F0.0 F0.1 B0.1 B0.0\nrank 1: F1.0 F1.1 B1.0 B1.1\n");
  const Outcome outcome = run_sinew("verify --file " + file);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("B0.1 comes before B0.0"), std::string::npos) << outcome.out;
}

TEST(Verify, AllInAListIsAll) {
  const TestFolder folder;
  for (const std::string ops : {"all,pipeline", "all_reduce,all"}) {
    EXPECT_EQ(run_sinew("verify --world 2 --microbatches 2 --op " + ops + " --json " +
                        folder.path("facts"))
                  .exit_code,
              0);
    std::size_t all = 0;
    for (const sched::Algorithm& row : sched::algorithms())
      all += row.refuse({.world = 2}).empty() ? 1 : 0;
    EXPECT_EQ(json_lines(folder.read("facts")).size(), all + sched::pipe_algorithms().size())
        << ops;
  }
}

TEST(Simulate, StaysWithinFivePercentOfTheClosedFormForEveryRow) {
  const TestFolder folder;
  for (const int world : {4, 7}) {
    const Outcome outcome = run_sinew(fmt::format(
        "simulate --op all --world {} --bytes 8,1M --json {}", world, folder.path("times")));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    int collectives = 0;
    for (const nlohmann::json& line : json_lines(folder.read("times"))) {
      if (line["op"] == "pipeline") continue;
      ++collectives;
      EXPECT_LE(line["simulated_us"].get<double>(),
                1.05 * line["closed_form_us"].get<double>() + 1e-3)
          << line;
      EXPECT_GE(line["simulated_us"].get<double>(), line["bound_us"].get<double>() - 1e-3) << line;
    }
    EXPECT_GT(collectives, 20);
  }
}

TEST(Verify, SaysWhichSchedulesExistInNoneOfTheWorlds) {
  const Outcome outcome = run_sinew("verify --op reduce_scatter --world 3,5");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("reduce_scatter halving, reduce_scatter swing"), std::string::npos)
      << outcome.out;
}

TEST(Simulate, TakesEachPipelineScheduleWithItsUsualChunks) {
  const TestFolder folder;
  const Outcome outcome =
      run_sinew("simulate --op pipeline --world 4 --json " + folder.path("lines"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json_lines(folder.read("lines")).size(), sched::pipe_algorithms().size());
}

TEST(Simulate, GivesABarrierOneRow) {
  const Outcome outcome = run_sinew("simulate --op barrier --algo dissemination");
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = outcome.out.find("barrier  ", at)) != std::string::npos; ++at)
    ++rows;
  EXPECT_EQ(rows, 1U) << outcome.out;
}

TEST(Simulate, ReadsATopologyAndDrawsIt) {
  const TestFolder folder;
  const std::string topology = folder.write("hosts.txt",
                                            "topology two-hosts\nranks 4\n"
                                            "link * <-> * latency 5us bandwidth 1GB/s\n"
                                            "link 0-1 <-> 0-1 latency 1us bandwidth 10GB/s\n"
                                            "link 2-3 <-> 2-3 latency 1us bandwidth 10GB/s\n");
  const Outcome outcome =
      run_sinew("simulate --algo ring --bytes 1M --topology " + topology + " --svg " +
                folder.path("ring.svg") + " --trace " + folder.path("ring.json"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("two-hosts: 4 ranks"), std::string::npos);
  EXPECT_TRUE(folder.read("ring.svg").starts_with("<svg"));
  EXPECT_TRUE(nlohmann::json::accept(folder.read("ring.json")));
}

// A pair that nobody described would exchange whatever it wants in no time at all.
TEST(Simulate, RefusesATopologyThatLeavesAPairWithoutALink) {
  const TestFolder folder;
  const Outcome outcome =
      run_sinew("simulate --algo ring --topology " +
                folder.write("hosts.txt",
                             "ranks 4\nlink 0-1 <-> 0-3 latency 1us bandwidth 10GB/s\n"
                             "link 2 -> 3 latency 1us bandwidth 10GB/s\n"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("no link from rank 3 to rank 2"), std::string::npos) << outcome.err;
}

// As an editor of another system writes them.
TEST(Files, MayBeginWithAByteOrderMarkAndEndLinesWithCarriageReturns) {
  const TestFolder folder;
  const auto foreign = [&](const std::string& name, std::string text) {
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
      text.insert(at, "\r");
    return folder.write(name, "\xef\xbb\xbf" + text);
  };
  const std::string ring = foreign(
      "ring", sched::print(sched::generate(
                  sched::find_algorithm(sched::Collective::kAllReduce, "ring"), {.world = 3})));
  const std::string pipe =
      foreign("pipe", sched::print(sched::generate(sched::find_pipe_algorithm("1f1b"), {2, 1, 2})));
  const std::string hosts =
      foreign("hosts", "ranks 3\nlink * <-> * latency 1us bandwidth 10GB/s\n");
  for (const std::string& arguments : {"verify --file " + ring, "verify --file " + pipe,
                                       "simulate --topology " + hosts + " --file " + ring}) {
    const Outcome outcome = run_sinew(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << arguments << outcome.err;
  }
}

}  // namespace
}  // namespace sinew::test
