// The measured table of `auto`: its text form, its order, and that it comes before the built-in
// one.
#include "comm/selection_file.h"

#include <gtest/gtest.h>

#include "comm/select.h"
#include "sched/base/error.h"
#include "sched/collective/registry.h"

namespace sinew::comm {
namespace {

using sched::Collective;

constexpr const char* kText =
    "# a comment\n"
    "all_reduce 3 2K recursive_doubling\n"
    "all_reduce 3 any ring   # and beyond\n"
    "\n"
    "all_reduce 4 any two_shot\n"
    "all_reduce 4 any ring ucx\n";

TEST(SelectionFile, RowsComeBeforeTheBuiltInOnesForTheirWorldOnly) {
  const SelectionFile file(kText, "text");
  const Machine three = {.world = 3, .cores = 2, .measured = &file};
  EXPECT_EQ(select(Collective::kAllReduce, 2048, three).algorithm, "recursive_doubling");
  EXPECT_EQ(select(Collective::kAllReduce, 2049, three).algorithm, "ring");
  EXPECT_NE(select(Collective::kAllReduce, 8, three).reason.find("measured"), std::string::npos);
  const Machine five = {.world = 5, .cores = 2, .measured = &file};
  for (const std::int64_t bytes : {0, 8, 1 << 20}) {
    EXPECT_EQ(select(Collective::kAllReduce, bytes, five).algorithm,
              select(Collective::kAllReduce, bytes, {.world = 5, .cores = 2}).algorithm);
    EXPECT_EQ(select(Collective::kBroadcast, bytes, three).algorithm,
              select(Collective::kBroadcast, bytes, {.world = 3, .cores = 2}).algorithm);
  }
}

TEST(SelectionFile, TheFastLookUpGivesTheSameAnswers) {
  const SelectionFile file(kText, "text");
  for (const int world : {2, 3, 4, 5}) {
    const Machine machine = {.world = world, .cores = 2, .measured = &file};
    const Selector selector(machine);
    for (const sched::Algorithm& row : sched::algorithms()) {
      for (std::int64_t bytes = 1; bytes < 1 << 24; bytes *= 2) {
        EXPECT_EQ(sched::algorithms()[selector.index(row.op, bytes)].name,
                  select(row.op, bytes, machine).algorithm);
      }
    }
  }
}

// What one transport was measured to be best with says nothing of another.
TEST(SelectionFile, RowsOfATransportHoldOverItAloneAndComeBeforeThoseOfAny) {
  const SelectionFile file(
      "all_reduce 2 64 ring\nall_reduce 2 any two_shot\n"
      "all_reduce 2 any recursive_doubling ucx\nbroadcast 2 any chain ucx\n",
      "text");
  const auto taken = [&](Collective op, std::int64_t bytes, std::string_view transport) {
    const Machine machine = {.world = 2, .cores = 2, .transport = transport, .measured = &file};
    const auto chosen = select(op, bytes, machine).algorithm;
    EXPECT_EQ(sched::algorithms()[Selector(machine).index(op, bytes)].name, chosen);
    return chosen;
  };
  EXPECT_EQ(taken(Collective::kAllReduce, 8, "ucx"), "recursive_doubling");
  EXPECT_EQ(taken(Collective::kAllReduce, 8, "shm"), "ring");
  EXPECT_EQ(taken(Collective::kAllReduce, 1000, "shm"), "two_shot");
  EXPECT_EQ(taken(Collective::kBroadcast, 8, "ucx"), "chain");
  EXPECT_EQ(taken(Collective::kBroadcast, 8, "shm"), "direct");
}

TEST(SelectionFile, PrintsWhatItReads) {
  SelectionFile file(kText, "text");
  const SelectionFile again(file.print(), "again");
  EXPECT_EQ(again.print(), file.print());
  ASSERT_EQ(again.rows().size(), 4U);
  const SelectionFile::Row row = {
      Collective::kAllReduce, 3, SelectionFile::kAnyBytes, "two_shot", {}, {}};
  file.replace({&row, 1});
  EXPECT_EQ(file.rows().size(), 3U);
  EXPECT_EQ(file.find(Collective::kAllReduce, 8, 3, "shm")->algorithm, "two_shot");
}

TEST(SelectionFile, RefusesWhatIsWrongByLine) {
  const std::pair<const char*, const char*> bad[] = {
      {"all_reduce 2 any", "3 fields"},
      {"all_reduce 2 any ring shm more", "6 fields"},
      {"nope 2 any ring", "all_reduce"},
      {"all_reduce 0 any ring", "ranks 0"},
      {"all_reduce x any ring", "'x'"},
      {"all_reduce 2 -1 ring", "'-1'"},
      {"all_reduce 2 any nope", "ring"},
      {"reduce_scatter 3 any halving", "power of two"},
      {"all_reduce 2 8 ring", "any"},
      {"all_reduce 2 8 ring\nall_reduce 2 8 ring\nall_reduce 2 any ring", "line 2"},
      {"all_reduce 2 any ring\nall_reduce 2 any ring", "line 2"},
  };
  for (const auto& [text, word] : bad) {
    try {
      const SelectionFile file(text, "table");
      ADD_FAILURE() << text;
    } catch (const UsageError& error) {
      const std::string line = error.what();
      EXPECT_NE(line.find(word), std::string::npos) << text << ": " << line;
      EXPECT_TRUE(line.starts_with("table")) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace sinew::comm
