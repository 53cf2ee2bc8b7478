// Over every wire of this machine: whatever happens to one rank or to the network, every other rank
// throws within its deadline and says what happened.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/transport/verbs.h"
#include "comm/transport/wire.h"
#include "sched/base/error.h"
#include "tests/net/support/bare_wire.h"
#include "tests/net/support/wires.h"

namespace sinew::comm::testing {
namespace {

using std::chrono::steady_clock;

// What a rank notices it says at once; at the deadline it says how long nothing happened.
void expect_before_deadline(const Outcome& outcome) {
  EXPECT_EQ(outcome.text.find("for 100 s"), std::string::npos) << outcome.text;
}
static_assert(kPatienceS == 100);

void reduce(Communicator& c, std::int64_t count) {
  std::vector<float> data(static_cast<std::size_t>(count), 1.0F);
  c.all_reduce(data.data(), data.data(), count, DType::kF32, ReduceOp::kSum);
}

// Of three ranks the one between was killed.
void expect_rank_1_was_missed(const std::string& wire, const std::vector<Outcome>& outcomes) {
  EXPECT_TRUE(outcomes[1].killed());
  for (const std::size_t rank : {0, 2}) {
    EXPECT_TRUE(outcomes[rank].threw) << wire << ": " << outcomes[rank].text;
    EXPECT_NE(outcomes[rank].text.find("rank 1"), std::string::npos) << outcomes[rank].text;
    expect_before_deadline(outcomes[rank]);
  }
}

TEST(NetFailure, AKilledRankIsNoticedByAllOthers) {
  for (const std::string& wire : wires_here()) {
    for (const std::int64_t count : {10, 300'000}) {
      const auto outcomes = run_over(wire, 3, kPatienceS, [&](Communicator& c) -> std::string {
        for (int call = 0; call < 20; ++call) {
          reduce(c, count);
          if (c.rank() == 1 && call == 3) kill(getpid(), SIGKILL);
        }
        return "noticed nothing";
      });
      expect_rank_1_was_missed(wire, outcomes);
    }
  }
}

// It takes in nothing any more when it dies, and what the others may send it is sent.
TEST(NetFailure, ARankThatStoppedBeforeItWasKilledIsNoticedByAllOthers) {
  for (const std::string& wire : wires_here()) {
    const auto outcomes = run_over(wire, 3, kPatienceS, [&](Communicator& c) -> std::string {
      reduce(c, 10);
      if (c.rank() == 1) {
        const pid_t self = getpid();
        if (fork() == 0) {
          close_range(0, ~0U, 0);  // else connections outlive their process
          sleep(1);
          kill(self, SIGKILL);
          _exit(0);
        }
        raise(SIGSTOP);
      }
      for (int call = 0; call < 20; ++call) reduce(c, 10);
      return "noticed nothing";
    });
    expect_rank_1_was_missed(wire, outcomes);
  }
}

// The late rank comes when the others have given up, however long that takes them, and they stay
// until it has given up, too: nobody meets a process that is gone.
TEST(NetFailure, ALateRankIsNamedAtTheDeadline) {
  for (const std::string& wire : wires_here()) {
    const SharedCount given_up;
    const auto outcomes = run_over(wire, 3, 1, [&](Communicator& c) -> std::string {
      if (c.rank() == 1) given_up.wait_for(2);
      try {
        c.barrier();
      } catch (const Error&) {
        given_up.add();
        given_up.wait_for(3);
        throw;
      }
      return "noticed nothing";
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.threw) << wire << ": " << outcome.text;
      EXPECT_NE(outcome.text.find("call 1 (barrier"), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find("for 1 s"), std::string::npos) << outcome.text;
    }
  }
}

TEST(NetFailure, MismatchedCallsAreNamedOnEveryRank) {
  for (const std::string& wire : wires_here()) {
    const auto outcomes = run_over(wire, 3, kPatienceS, [](Communicator& c) -> std::string {
      reduce(c, c.rank() == 2 ? 3001 : 3000);
      c.barrier();
      return "noticed nothing";
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.threw) << wire << ": " << outcome.text;
      EXPECT_NE(outcome.text.find("of 3000 f32"), std::string::npos) << outcome.text;
      EXPECT_NE(outcome.text.find("of 3001 f32"), std::string::npos) << outcome.text;
    }
  }
}

// Longer than what is wanted and, in its whole, than any slot.
TEST(NetFailure, AMessageThatIsTooLongIsNamedOnBothRanksWhateverItsLength) {
  for (const std::string& wire : wires_here()) {
    for (const std::int64_t wanted : {0, 10, 40'000, 300'000}) {
      const auto outcomes = run_over(wire, 2, kPatienceS, [&](Communicator& c) -> std::string {
        std::vector<float> data(500'000);
        if (c.rank() == 0) {
          c.send(data.data(), 500'000, DType::kF32, 1);
        } else {
          c.recv(data.data(), wanted, DType::kF32, 0);
        }
        c.barrier();
        return "noticed nothing";
      });
      for (const Outcome& outcome : outcomes) {
        EXPECT_TRUE(outcome.threw) << wire << ": " << outcome.text;
        EXPECT_NE(outcome.text.find("of 500000 f32"), std::string::npos) << outcome.text;
        EXPECT_NE(outcome.text.find("of " + std::to_string(wanted) + " f32"), std::string::npos)
            << outcome.text;
      }
    }
  }
}

TEST(NetFailure, ARankThatThrowsStopsTheOthersWithItsWords) {
  for (const std::string& wire : wires_here()) {
    const auto outcomes = run_over(wire, 3, kPatienceS, [](Communicator& c) -> std::string {
      c.barrier();
      if (c.rank() == 2) throw std::runtime_error("out of data");
      reduce(c, 1000);
      return "noticed nothing";
    });
    for (const std::size_t rank : {0, 1}) {
      EXPECT_NE(outcomes[rank].text.find("left by an exception"), std::string::npos)
          << wire << ": " << outcomes[rank].text;
      expect_before_deadline(outcomes[rank]);
    }
  }
}

TEST(NetFailure, ARankThatLeavesEarlyIsNamed) {
  for (const std::string& wire : wires_here()) {
    const auto outcomes = run_over(wire, 3, kPatienceS, [](Communicator& c) -> std::string {
      c.barrier();
      if (c.rank() == 2) return "left";
      reduce(c, 10);
      return "noticed nothing";
    });
    for (const std::size_t rank : {0, 1}) {
      EXPECT_NE(outcomes[rank].text.find("rank 2 has destroyed its communicator"),
                std::string::npos)
          << wire << ": " << outcomes[rank].text;
    }
  }
}

TEST(NetFailure, UnknownTransportsAndDevicesAreOneLineWithThoseThatExist) {
  const auto said = [](const std::string& transport) {
    return run_processes(2, [&](Bootstrap& bootstrap) -> std::string {
      const auto c = Communicator::from_bootstrap(bootstrap, {.transport = transport});
      return "no error";
    });
  };
  for (const Outcome& outcome : said("carrier-pigeon")) {
    EXPECT_NE(outcome.text.find("'carrier-pigeon' is unknown; legal values: auto, shm"),
              std::string::npos)
        << outcome.text;
  }
  for (const Outcome& outcome : said("verbs:nothing0")) {
    EXPECT_TRUE(outcome.threw);
    EXPECT_EQ(outcome.text.find('\n'), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("verbs: "), std::string::npos) << outcome.text;
  }
}

// Passes on what ranks tell each other, but with one rank's key for its slots garbled.
class GarblesKey final : public Bootstrap {
 public:
  GarblesKey(Bootstrap& bootstrap, int whose) : bootstrap_(bootstrap), whose_(whose) {}
  [[nodiscard]] int rank() const override { return bootstrap_.rank(); }
  [[nodiscard]] int world() const override { return bootstrap_.world(); }
  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    std::vector<std::byte> told(mine.begin(), mine.end());
    if (rank() == whose_ &&
        told.size() == sizeof(VerbsAddress) * static_cast<std::size_t>(world())) {
      for (int peer = 0; peer < world(); ++peer) {
        VerbsAddress address;
        std::byte* at = told.data() + static_cast<std::size_t>(peer) * sizeof address;
        std::memcpy(&address, at, sizeof address);
        address.key ^= 0x5500;
        std::memcpy(at, &address, sizeof address);
      }
    }
    bootstrap_.all_gather(told, all);
  }

 private:
  Bootstrap& bootstrap_;
  int whose_;
};

TEST(NetFailure, AWrongKeyIsAnErrorInWordsOnEveryRank) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  const auto outcomes = run_processes(3, [](Bootstrap& real) -> std::string {
    GarblesKey bootstrap(real, 1);
    const auto c = Communicator::from_bootstrap(
        bootstrap, {.transport = transport_of("verbs", real.rank()), .timeout_s = kPatienceS});
    reduce(*c, 1000);
    return "noticed nothing";
  });
  bool refused = false;
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.threw) << outcome.text;
    refused |= outcome.text.find("refused the key") != std::string::npos;
  }
  EXPECT_TRUE(refused) << outcomes[0].text;
}

// Without the right to lock as much as it likes, which root has.
bool keep_locked_memory_below(std::size_t size_bytes) {
  const rlimit limit{size_bytes, size_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  return syscall(SYS_capset, &header, data) == 0;
}

TEST(NetFailure, ALowLimitOfLockedMemoryIsAnErrorInWordsOnEveryRank) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  const auto outcomes = run_processes(3, [](Bootstrap& bootstrap) -> std::string {
    if (bootstrap.rank() == 1 && !keep_locked_memory_below(64 << 10)) return "cannot set a limit";
    const auto c = Communicator::from_bootstrap(
        bootstrap, {.transport = transport_of("verbs", bootstrap.rank()), .timeout_s = kPatienceS});
    return "noticed nothing";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.threw) << outcome.text;
    for (const char* words : {"rank 1: verbs: device",
                              "locked memory of this process is limited to 64 KiB", "ulimit -l"})
      EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
  }
}

// A rank that writes on although its peer takes nothing in.
TEST(NetFailure, AnExhaustedQueueIsAnErrorInWordsAndEndsTheConnectionOnBothSides) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  const SharedCount ended;
  const auto outcomes = run_processes(2, [&](Bootstrap& bootstrap) -> std::string {
    BareWire bare(bootstrap);
    if (bootstrap.rank() == 0) {
      for (int i = 0; i < 1 << 14 && bare.heard.text.empty(); ++i) bare.wire->credit(1, 0, 1);
      bare.wire->stop();
      ended.add();
      return bare.heard.text;
    }
    ended.wait_for(1);
    return bare.listen();
  });
  EXPECT_NE(outcomes[0].text.find("requests fit into the queue"), std::string::npos)
      << outcomes[0].text;
  EXPECT_NE(outcomes[1].text.find("verbs: "), std::string::npos) << outcomes[1].text;
}

// An offer, garbled where it arrives, before the wire has looked at it.
TEST(NetFailure, AWrongKeyOfAnOfferedBlockIsAnErrorInWordsOnBothSides) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  const auto outcomes = run_processes(2, [](Bootstrap& bootstrap) -> std::string {
    BareWire bare(bootstrap);
    if (bootstrap.rank() == 0) {
      if (!bare.offer()) return "the memory was not lent";
      return bare.listen();
    }
    const auto start = steady_clock::now();
    VerbsOffer offer{};
    std::byte* at = bare.slots.data() + bare.layout.offset(0, 0, 0) - sizeof offer;
    while (offer.key == 0 && seconds_since(start) < kPatienceS) {
      usleep(10'000);
      std::memcpy(&offer, at, sizeof offer);
    }
    offer.key ^= 0x5500;
    std::memcpy(at, &offer, sizeof offer);
    bare.await(&bare.heard.offers, 1);
    if (!bare.land()) return "the memory was not lent";
    return bare.listen();
  });
  EXPECT_NE(outcomes[0].text.find("verbs: "), std::string::npos) << outcomes[0].text;
  EXPECT_NE(outcomes[1].text.find("refused the key"), std::string::npos) << outcomes[1].text;
}

// An adapter asks again when an answer is late; what it then asks for may be over on both sides.
TEST(NetFailure, ABlockThatIsReadOnceMoreWhenItsSenderIsDoneWithItIsNoFailure) {
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  const SharedCount done;
  const auto outcomes = run_processes(2, [&](Bootstrap& bootstrap) -> std::string {
    BareWire bare(bootstrap);
    if (bootstrap.rank() == 0) {
      if (!bare.offer()) return "the memory was not lent";
      bare.await(&bare.heard.ends, 1);
      done.add();
      done.wait_for(2);
      return bare.heard.text;
    }
    bare.await(&bare.heard.offers, 1);
    for (const int times : {1, 2}) {
      if (!bare.land()) return "the memory was not lent";
      bare.await(&bare.heard.arrivals, times);
      if (times == 1) done.wait_for(1);
    }
    done.add();
    return bare.heard.arrivals == 2 ? bare.heard.text : "nothing arrived: " + bare.heard.text;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.text, "");
}

// SINEW_NET_LINK is an interface that the wires of this machine run over and that may be cut.
TEST(NetFailure, ALinkThatGoesDownIsNoticedByBothSides) {
  const char* link = std::getenv("SINEW_NET_LINK");
  if (link == nullptr) GTEST_SKIP() << "SINEW_NET_LINK names no link that may be taken down";
  if (!has_wire("verbs")) GTEST_SKIP() << "no RDMA device on this machine";
  const auto outcomes = run_over("verbs", 2, kPatienceS, [&](Communicator& c) -> std::string {
    for (int call = 0; call < 5; ++call) reduce(c, 1000);
    if (c.rank() == 0 && std::system((std::string("ip link set ") + link + " down").c_str()) != 0)
      return "could not take the link down";
    for (int call = 0; call < 5; ++call) reduce(c, 1000);
    return "noticed nothing";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.threw) << outcome.text;
    EXPECT_NE(outcome.text.find("link"), std::string::npos) << outcome.text;
    expect_before_deadline(outcome);
  }
}

}  // namespace
}  // namespace sinew::comm::testing
