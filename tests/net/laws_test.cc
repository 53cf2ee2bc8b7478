// Over every wire of this machine, ranks compute and exchange the same as in one memory.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/communicator.h"
#include "sched/base/dtype.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/exchanges.h"
#include "tests/net/support/wires.h"

namespace sinew::comm::testing {
namespace {

void expect_all_silent(const std::string& wire, int world,
                       const std::function<std::string(Communicator&)>& body) {
  const auto outcomes = run_over(wire, world, kPatienceS, body);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].status, 0) << wire << ", rank " << rank << " of " << world;
    EXPECT_EQ(outcomes[rank].text, "") << wire << ", rank " << rank << " of " << world;
  }
}

TEST(NetLaws, EveryOperationIsExactInEveryTypeOnTwoToFourRanks) {
  for (const std::string& wire : wires_here()) {
    for (const int world : {2, 3, 4}) {
      expect_all_silent(wire, world, [world](Communicator& c) -> std::string {
        for (const sched::Collective op : operations()) {
          for (const DTypeInfo& type : kDTypes) {
            const std::string wrong = run_case(c, {.op = op,
                                                   .algorithm = "auto",
                                                   .dtype = type.dtype,
                                                   .count = 1000,
                                                   .root = world - 1});
            if (!wrong.empty()) return wrong;
          }
        }
        return {};
      });
    }
  }
}

TEST(NetLaws, EveryAlgorithmIsExactOnThreeAndFourRanks) {
  for (const std::string& wire : wires_here()) {
    for (const int world : {3, 4}) {
      expect_all_silent(wire, world, [world](Communicator& c) -> std::string {
        for (const sched::Algorithm& row : sched::algorithms()) {
          if (!row.refuse({.world = world}).empty()) continue;
          for (const std::int64_t count : {0, 5, 30'000}) {
            const std::string wrong =
                run_case(c, {.op = row.op, .algorithm = std::string(row.name), .count = count});
            if (!wrong.empty()) return wrong;
          }
        }
        return {};
      });
    }
  }
}

TEST(NetLaws, LargeBuffersAreExact) {
  for (const std::string& wire : wires_here()) {
    expect_all_silent(wire, 2, [](Communicator& c) {
      return run_case(c,
                      {.op = sched::Collective::kAllReduce, .algorithm = "ring", .count = 500'003});
    });
  }
}

// Lengths that pieces of any size divide, so that no short piece is left over.
constexpr std::int64_t kLargeBytes = 2 << 20;

// Exactly: of kLargeBytes sent none were copied first, of as many received `landed` came where they
// were wanted.
std::string differs(const Communicator& c, std::int64_t landed) {
  const NetworkCounters& network = c.counters().network;
  if (network.sent_bytes == kLargeBytes && network.staged_bytes == 0 &&
      network.received_bytes == kLargeBytes && network.landed_bytes == landed)
    return {};
  return "rank " + std::to_string(c.rank()) + ": of " + std::to_string(network.sent_bytes) +
         " bytes sent " + std::to_string(network.staged_bytes) + " were copied first, of " +
         std::to_string(network.received_bytes) + " received " +
         std::to_string(network.landed_bytes) + " came where they were wanted";
}

// Who comes last changes from call to call, by more than a waiting rank takes to tell where it
// stands: what is told is not what is sent.
void come_late(const Communicator& c, int rank) {
  constexpr int kLateUs = 150'000;
  if (c.rank() == rank) usleep(kLateUs);
}

TEST(NetLaws, LargeMessagesAreCopiedByNobodyFromPlainAndSymmetricMemoryWhoeverIsLate) {
  for (const std::string& wire : wires_here()) {
    expect_all_silent(wire, 2, [](Communicator& c) -> std::string {
      std::vector<std::byte> plain(3 * kLargeBytes);
      const Symmetric symmetric = c.allocate(3 * kLargeBytes);
      for (std::byte* memory : {plain.data(), symmetric.get()}) {
        std::byte* target = memory + kLargeBytes;
        std::fill(memory, target, std::byte(1 + c.rank()));
        c.barrier();
        c.reset_counters();
        come_late(c, 0);
        Request receive = c.start_recv(target, kLargeBytes, DType::kU8, 1 - c.rank());
        c.send(memory, kLargeBytes, DType::kU8, 1 - c.rank());
        receive.wait();
        std::string wrong = differs(c, kLargeBytes);
        if (!wrong.empty()) return "messages: " + wrong;
        for (std::int64_t i = 0; i < kLargeBytes; ++i) {
          if (target[i] != std::byte(2 - c.rank())) return "wrong byte " + std::to_string(i);
        }
        c.reset_counters();
        come_late(c, 1);
        c.all_gather(memory + 2 * kLargeBytes, memory, kLargeBytes, DType::kU8);
        wrong = differs(c, kLargeBytes);
        if (!wrong.empty()) return "all_gather: " + wrong;
        // What is reduced on arrival has no other place to come to than a slot, and is read there.
        c.reset_counters();
        come_late(c, 0);
        c.all_reduce(memory, memory, kLargeBytes, DType::kU8, ReduceOp::kMax,
                     {.algorithm = "ring"});
        wrong = differs(c, kLargeBytes / 2);
        if (!wrong.empty()) return "all_reduce: " + wrong;
      }
      return {};
    });
  }
}

// Offers, what was offered and answers cross each other; the memory of each message is lent anew.
TEST(NetLaws, LargeMessagesBothWaysAtOnceAreExact) {
  constexpr std::int64_t kBytes = 128 << 10;
  constexpr int kMessages = 12;
  for (const std::string& wire : wires_here()) {
    expect_all_silent(wire, 2, [](Communicator& c) -> std::string {
      const auto length = static_cast<std::size_t>(kMessages * kBytes);
      for (int round = 0; round < 6; ++round) {
        std::vector<std::byte> source(length);
        std::vector<std::byte> target(length);
        const auto byte_of = [&](int rank, std::size_t i) {
          return std::byte((i * 7 + i / kBytes * 31 + static_cast<std::size_t>(round) * 2 +
                            static_cast<std::size_t>(rank)) %
                           251);
        };
        for (std::size_t i = 0; i < length; ++i) source[i] = byte_of(c.rank(), i);
        std::vector<Request> requests;
        for (int i = 0; i < kMessages; ++i) {
          requests.push_back(
              c.start_recv(target.data() + i * kBytes, kBytes, DType::kU8, 1 - c.rank()));
          requests.push_back(
              c.start_send(source.data() + i * kBytes, kBytes, DType::kU8, 1 - c.rank()));
        }
        for (Request& request : requests) request.wait();
        for (std::size_t i = 0; i < length; ++i) {
          if (target[i] != byte_of(1 - c.rank(), i))
            return "round " + std::to_string(round) + ", byte " + std::to_string(i);
        }
      }
      return {};
    });
  }
}

TEST(NetLaws, MemoryInThePlaceOfFreedMemorySendsAndReceivesItsOwnBytes) {
  for (const std::string& wire : wires_here()) {
    expect_all_silent(wire, 2, [](Communicator& c) -> std::string {
      void* at = nullptr;
      for (int round = 0; round < 20; ++round) {
        const int fixed = round == 0 ? 0 : MAP_FIXED;
        at = mmap(at, 2 * kLargeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed,
                  -1, 0);
        if (at == MAP_FAILED) return "no memory";
        auto* memory = static_cast<std::byte*>(at);
        std::fill(memory, memory + kLargeBytes, std::byte(round * 2 + c.rank()));
        Request receive = c.start_recv(memory + kLargeBytes, kLargeBytes, DType::kU8, 1 - c.rank());
        c.send(memory, kLargeBytes, DType::kU8, 1 - c.rank());
        receive.wait();
        for (std::int64_t i = 0; i < kLargeBytes; ++i) {
          if (memory[kLargeBytes + i] != std::byte(round * 2 + 1 - c.rank()))
            return "round " + std::to_string(round) + ", byte " + std::to_string(i);
        }
        // The address stays reserved; the memory behind it is given back.
        munmap(at, 2 * kLargeBytes);
      }
      return {};
    });
  }
}

TEST(NetLaws, MessagesSplitsAndCallsInFlightKeepApart) {
  for (const std::string& wire : wires_here()) {
    for (const int world : {2, 3}) {
      expect_all_silent(wire, world, [](Communicator& c) -> std::string {
        for (const auto check : {check_messages, check_split, check_several_in_flight}) {
          const std::string wrong = check(c);
          if (!wrong.empty()) return wrong;
        }
        return {};
      });
    }
  }
}

}  // namespace
}  // namespace sinew::comm::testing
