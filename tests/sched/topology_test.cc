// Topologies: what the text says is what links have; bad text is one line with the legal values.
#include <gtest/gtest.h>

#include <string>

#include "sched/base/error.h"
#include "sched/topology.h"

namespace sinew::sched {
namespace {

constexpr const char* kText = R"(# by hand
topology two-hosts
ranks 8
ports 2
reduce 0.1ns/B
copy 50ps/B
link * <-> * latency 2us bandwidth 12.5GB/s
link 0-3 <-> 0-3 latency 300ns cost 0.05ns/B   # inside
link 4,5,6-7 <-> 4-7 latency 300ns cost 0.05ns/B
link 0 -> 7 latency 1ms cost 1us/B
share wire 0-3 -> 4-7
share wire 4-7 -> 0-3
share slow 0 -> 7
work 0-3 <-> 4-7 message 3us cost 0.2ns/B reduce 0.05ns/B
work 0 -> 7 message 1us cost 0s/B
cores all * 4
cores first 0-1 1
)";

TEST(Topology, LinksAreWhatTheLastMatchingLineSays) {
  const Topology t = parse_topology(kText);
  EXPECT_EQ(t.name, "two-hosts");
  EXPECT_EQ(t.world, 8);
  EXPECT_EQ(t.ports, 2);
  EXPECT_DOUBLE_EQ(t.reduce_s_per_byte, 1e-10);
  EXPECT_DOUBLE_EQ(t.copy_s_per_byte, 5e-11);
  EXPECT_DOUBLE_EQ(t.link(1, 2).latency_s, 3e-7);
  EXPECT_DOUBLE_EQ(t.link(6, 4).cost_s_per_byte, 5e-11);
  EXPECT_DOUBLE_EQ(t.link(3, 4).latency_s, 2e-6);
  EXPECT_DOUBLE_EQ(t.link(3, 4).cost_s_per_byte, 8e-11);
  EXPECT_DOUBLE_EQ(t.link(0, 7).latency_s, 1e-3);
  EXPECT_DOUBLE_EQ(t.link(7, 0).latency_s, 2e-6);
  EXPECT_TRUE(t.shares_of(0, 3).empty());
  EXPECT_EQ(t.shares_of(1, 5), t.shares_of(5, 1));  // one name, one share
  EXPECT_EQ(t.shares_of(0, 7).size(), 2U);
}

TEST(Topology, WorkAndProcessorsAreWhatTheLastMatchingLineSays) {
  const Topology t = parse_topology(kText);
  EXPECT_EQ(t.work(1, 2), (Link{0, 0}));
  EXPECT_DOUBLE_EQ(t.work(4, 3).latency_s, 3e-6);
  EXPECT_DOUBLE_EQ(t.work(4, 3).cost_s_per_byte, 2e-10);
  EXPECT_DOUBLE_EQ(t.work(0, 7).latency_s, 1e-6);
  EXPECT_EQ(t.work(0, 7).cost_s_per_byte, 0);
  EXPECT_EQ(t.work(7, 0), t.work(4, 3));
  EXPECT_DOUBLE_EQ(t.reduction(1, 2), t.reduce_s_per_byte);
  EXPECT_DOUBLE_EQ(t.reduction(4, 3), t.reduce_s_per_byte + 0.05e-9);
  EXPECT_EQ(t.cores_of(0), 1);
  EXPECT_EQ(t.cores_of(2), 0);
  EXPECT_EQ(t.cores[0].count, 4);
  EXPECT_EQ(homogeneous(3, {}, 0).cores_of(2), -1);
}

TEST(Topology, TextRoundTrips) {
  for (const Topology& t :
       {parse_topology(kText), homogeneous(1, {}, 0), homogeneous(64, {1.5e-6, 1.0 / 3e9}, 7e-11),
        two_level(
            {.world = 10, .ranks_per_host = 4, .inside = {1e-7, 1e-11}, .between = {1e-6, 1e-10}}),
        two_level({.world = 4, .ranks_per_host = 8, .inside = {}, .between = {}})}) {
    EXPECT_EQ(parse_topology(print(t)), t) << print(t);
    EXPECT_EQ(print(parse_topology(print(t))), print(t));
  }
}

TEST(Topology, TwoLevelsShareAWayOutAndAWayInPerHost) {
  const Topology t = two_level({.world = 10,
                                .ranks_per_host = 4,
                                .inside = {1, 2},
                                .between = {3, 4},
                                .reduce_s_per_byte = 5});
  EXPECT_EQ(t.link(0, 3), (Link{1, 2}));
  EXPECT_EQ(t.link(8, 9), (Link{1, 2}));
  EXPECT_EQ(t.link(3, 4), (Link{3, 4}));
  EXPECT_EQ(t.shares_of(0, 3).size(), 0U);
  EXPECT_EQ(t.shares_of(0, 9).size(), 2U);
  EXPECT_EQ(t.shares_of(0, 4)[0], t.shares_of(1, 9)[0]);
  EXPECT_NE(t.shares_of(0, 4)[1], t.shares_of(1, 9)[1]);
}

TEST(Topology, BadTextIsOneLineWithTheLegalValues) {
  const std::string ranks = "ranks 4\n";
  for (const std::string& text : {std::string(),
                                  std::string("ranks\n"),
                                  std::string("ranks 0\n"),
                                  std::string("ranks 5000\n"),
                                  std::string("ranks x\n"),
                                  ranks + ranks,
                                  std::string("link * -> * latency 1us cost 1ns/B\n"),
                                  ranks + "hop 1\n",
                                  ranks + "cores all * 0\n",
                                  ranks + "cores all 4 1\n",
                                  ranks + "cores all *\n",
                                  ranks + "work * <-> * message 1us\n",
                                  ranks + "work * <-> * message 1 cost 1ns/B\n",
                                  ranks + "work * - * message 1us cost 1ns/B\n",
                                  ranks + "work * <-> * latency 1us cost 1ns/B\n",
                                  ranks + "work * <-> * message 1us cost 1ns/B reduce\n",
                                  ranks + "work * <-> * message 1us cost 1ns/B copy 1ns/B\n",
                                  ranks + "ports -1\n",
                                  ranks + "reduce 1\n",
                                  ranks + "reduce 2s/B\n",
                                  ranks + "reduce -1ns/B\n",
                                  ranks + "reduce 1e999s/B\n",
                                  ranks + "reduce nanns/B\n",
                                  ranks + "link 0 - 1 latency 1us cost 1ns/B\n",
                                  ranks + "link 0 -> 4 latency 1us cost 1ns/B\n",
                                  ranks + "link 2-1 -> 0 latency 1us cost 1ns/B\n",
                                  ranks + "link 0, -> 1 latency 1us cost 1ns/B\n",
                                  ranks + "link 0 -> 1 latency 1m cost 1ns/B\n",
                                  ranks + "link 0 -> 1 latency 1us rate 1ns/B\n",
                                  ranks + "link 0 -> 1 latency 1us bandwidth 0B/s\n",
                                  ranks + "link 0 -> 1 latency 1us\n",
                                  ranks + "share a 0 <-> 1\n",
                                  ranks + "share a 0 1\n",
                                  ranks + "topology\n"}) {
    try {
      (void)parse_topology(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const UsageError& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("legal: "), std::string::npos) << what;
      EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace sinew::sched
