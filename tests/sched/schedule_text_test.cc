// The text form of schedules: parse undoes print, and any other text is one line of complaint.
#include <gtest/gtest.h>

#include <string>

#include "sched/base/error.h"
#include "sched/collective/registry.h"

namespace sinew::sched {
namespace {

TEST(ScheduleText, ParseUndoesPrintForEveryRow) {
  for (const Algorithm& row : algorithms()) {
    for (int world : {1, 2, 3, 4, 8, 11}) {
      const Params params = {.world = world, .root = world / 2, .segments = row.segmented ? 5 : 1};
      if (!row.refuse(params).empty()) continue;
      const Schedule schedule = generate(row, params);
      EXPECT_EQ(parse_schedule(print(schedule)), schedule) << print(schedule);
    }
  }
}

TEST(ScheduleText, IsWhatPeopleRead) {
  const Algorithm& ring = find_algorithm(Collective::kReduceScatter, "ring");
  EXPECT_EQ(print(generate(ring, {.world = 3})),
            "schedule ring\n"
            "contract reduce_scatter world 3 root 0 chunks_per_block 1 segments 0\n"
            "rank 0\n"
            "scratch 1\n"
            "send 1 0 1 input[2] input[2]\n"
            "recv_reduce 2 0 1 input[1] scratch[0]\n"
            "send 1 0 1 scratch[0] scratch[0] 1\n"
            "recv_reduce 2 0 1 input[0] output[0]\n"
            "rank 1\n"
            "scratch 2\n"
            "send 2 0 1 input[0] input[0]\n"
            "recv_reduce 0 0 1 input[2] scratch[0]\n"
            "send 2 0 1 scratch[0] scratch[0] 1\n"
            "recv_reduce 0 0 1 input[1] output[1]\n"
            "rank 2\n"
            "scratch 0\n"
            "send 0 0 1 input[1] input[1]\n"
            "recv_reduce 1 0 1 input[0] scratch[0]\n"
            "send 0 0 1 scratch[0] scratch[0] 1\n"
            "recv_reduce 1 0 1 input[2] output[2]\n");
}

TEST(ScheduleText, CommentsAndBlankLinesSayNothing) {
  const Algorithm& ring = find_algorithm(Collective::kAllGather, "ring");
  const Schedule schedule = generate(ring, {.world = 3});
  std::string text = "# by hand\n\n";
  for (const char c : print(schedule))
    text += c == '\n' ? std::string("   # why\n\n") : std::string(1, c);
  EXPECT_EQ(parse_schedule(text), schedule);
}

TEST(ScheduleText, BadTextIsOneLineThatNamesTheLineAndTheLegalValues) {
  const std::string name = "schedule s\n";
  const std::string head =
      name + "contract all_reduce world 2 root 0 chunks_per_block 2 segments 0\n";
  const std::string rank = head + "rank 0\n";
  for (const std::string& text :
       {std::string(),
        std::string("schedule\n"),
        name,
        name + "contract all_reduce\n",
        name + "contract all world 2 root 0 chunks_per_block 1 segments 0\n",
        name + "contract all_reduce world 0 root 0 chunks_per_block 1 segments 0\n",
        name + "contract all_reduce world 9999999 root 0 chunks_per_block 1 segments 0\n",
        name + "contract all_reduce world 2 root 2 chunks_per_block 1 segments 0\n",
        name + "contract all_reduce world 2 root 0 chunks_per_block 0 segments 0\n",
        name + "contract all_gather world 4096 root 0 chunks_per_block 17 segments 0\n",
        name + "contract all_reduce world 2 root 0 chunks_per_block 1 segments -1\n",
        name +
            "contract all_reduce world 99999999999999999999 root 0 chunks_per_block 1 segments 0\n",
        head,
        rank,
        head + "rank 1\n",
        rank + "rank 1\nrank 2\n",
        head + "copy 0 0 1 input[0] output[0]\n",
        rank + "hop 1 0 1 input[0] input[0]\n",
        rank + "send\n",
        rank + "send 1 0 1 input[0]\n",
        rank + "send 2 0 1 input[0] input[0]\n",
        rank + "send 1 128 1 input[0] input[0]\n",
        rank + "send 1 + 1 input[0] input[0]\n",
        rank + "send 1 0 0 input[0] input[0]\n",
        rank + "send 1 0 3 input[0] input[0]\n",
        rank + "send 1 0 1 input[2] input[0]\n",
        rank + "send 1 0 2 input[1] input[0]\n",
        rank + "send 1 0 1 memory[0] input[0]\n",
        rank + "send 1 0 1 input[0 input[0]\n",
        rank + "send 1 0 1 input[-1] input[0]\n",
        rank + "send 1 0 1 scratch[0] scratch[0]\n",
        rank + "scratch 2\n",
        rank + "send 1 0 1 input[0] input[0] 0\n",
        rank + "send 1 0 1 input[0] input[0] -1\n"}) {
    try {
      (void)parse_schedule(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const UsageError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("schedule line "), std::string::npos) << what;
      EXPECT_NE(what.find("legal: "), std::string::npos) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace sinew::sched
