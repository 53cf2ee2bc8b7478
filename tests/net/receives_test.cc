// Over verbs: peers draw their receives from one queue where the adapter shares one, else each from
// its own and the transport says why; either holds all that the credits of all peers allow.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "comm/communicator.h"
#include "comm/transport/wire.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"
#include "tests/net/support/bare_wire.h"
#include "tests/net/support/wires.h"

namespace sinew::comm::testing {
namespace {

constexpr const char* kLimit = "SINEW_VERBS_SHARED_RECEIVES";

// In a rank's own process.
void limit_shared_receives(const char* limit) {
  if (limit == nullptr) {
    unsetenv(kLimit);
  } else {
    setenv(kLimit, limit, 1);
  }
}

TEST(NetReceives, PeersShareOneQueueElseTheTransportSaysWhyAndEveryOperationIsExact) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  struct Case {
    const char* limit;
    const char* says;
  };
  for (const Case& one : {Case{nullptr, "; one receive queue of "},
                          Case{"100", ", since SINEW_VERBS_SHARED_RECEIVES=100 is less than the "},
                          Case{"0", ", since SINEW_VERBS_SHARED_RECEIVES=0 is less than the "}}) {
    const auto outcomes = run_processes(3, [&](Bootstrap& bootstrap) -> std::string {
      limit_shared_receives(one.limit);
      const auto c = Communicator::from_bootstrap(
          bootstrap,
          {.transport = transport_of("verbs", bootstrap.rank()), .timeout_s = kPatienceS});
      if (c->network().find(one.says) == std::string::npos) return "it says: " + c->network();
      for (const sched::Collective op : operations()) {
        for (const std::int64_t count : {10, 20'000}) {
          const std::string wrong = run_case(*c, {.op = op, .algorithm = "auto", .count = count});
          if (!wrong.empty()) return wrong;
        }
      }
      return {};
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.text, "") << one.says;
  }
}

// Times that an adapter of this machine told or was told that no receive was there.
std::int64_t times_dry() {
  std::int64_t times = 0;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    for (const auto& counter : std::filesystem::directory_iterator(
             device.path() / "ports" / "1" / "hw_counters", error)) {
      if (counter.path().filename().string().find("rnr") == std::string::npos) continue;
      std::int64_t value = 0;
      std::ifstream(counter.path()) >> value;
      times += value;
    }
  }
  return times;
}

// Whatever credits allow, sent to a rank that takes nothing in until all of it is on its way.
TEST(NetReceives, AllThatTheCreditsOfAllPeersAllowAtOnceFindsAReceive) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  constexpr int kWorld = 4;
  constexpr int kHalf = NetLayout::kDepth / 2;
  for (const char* limit : {static_cast<const char*>(nullptr), "0"}) {
    const SharedCount posted;
    const SharedCount done;
    const std::int64_t before = times_dry();
    const auto outcomes = run_processes(kWorld, [&](Bootstrap& bootstrap) -> std::string {
      limit_shared_receives(limit);
      BareWire bare(bootstrap);
      const int blocks = (kWorld - 1) * kNetLanes * NetLayout::kDepth;
      if (bootstrap.rank() == 0) {
        posted.wait_for(kWorld - 1);
        bare.await(&bare.heard.arrivals, blocks);
        bare.await(&bare.heard.credits, blocks);
        done.add();
        if (bare.heard.arrivals == blocks && bare.heard.credits == blocks) return bare.heard.text;
        return "of " + std::to_string(blocks) + " blocks and credits came " +
               std::to_string(bare.heard.arrivals) + " and " + std::to_string(bare.heard.credits) +
               " " + bare.heard.text;
      }
      for (int lane = 0; lane < kNetLanes; ++lane) {
        for (int place = 0; place < NetLayout::kDepth; ++place) {
          std::byte* data = bare.staging.data() + bare.layout.offset(0, lane, place);
          const Post post{.peer = 0, .lane = lane, .place = place, .data = data, .size = 8};
          if (bare.wire->post(post) == Wire::Posted::kCopied)
            return "a block of the staging counts as copied";
        }
        for (int half = 0; half < 2; ++half) bare.wire->credit(0, lane, kHalf);
      }
      posted.add();
      const auto start = std::chrono::steady_clock::now();
      while (bare.heard.text.empty() && seconds_since(start) < 1) bare.wire->progress();
      done.wait_for(1);
      return bare.heard.text;
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.text, "");
    EXPECT_EQ(times_dry(), before) << "with limit " << (limit == nullptr ? "none" : limit);
  }
}

}  // namespace
}  // namespace sinew::comm::testing
