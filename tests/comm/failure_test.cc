// Never hang, never lie: whatever one rank does wrong, every rank throws within the deadline and
// says who did what.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "sched/base/error.h"
#include "tests/comm/support/collective_case.h"
#include "tests/comm/support/failures.h"
#include "tests/comm/support/faulty.h"
#include "tests/comm/support/processes.h"

namespace sinew::comm::testing {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// The deadline of calls that must not wait for it, and what "at once" means beside it: a busy
// machine may stop a rank for seconds.
constexpr double kDeadlineS = 30;
constexpr double kAtOnceS = 20;

using Body = std::function<void(Communicator&)>;

struct Variant {
  std::string name;
  Body right;  // what all ranks but the last call
  Body wrong;  // what the last rank calls
  std::string right_words;
  std::string wrong_words;
};

std::byte* buffer(int which) {
  thread_local std::vector<std::byte> memory[2] = {std::vector<std::byte>(1 << 20),
                                                   std::vector<std::byte>(1 << 20)};
  return memory[which].data();
}

Body all_reduce(std::int64_t count, DType dtype = DType::kF32, ReduceOp op = ReduceOp::kSum,
                std::string_view algorithm = "auto") {
  return [=](Communicator& c) {
    c.all_reduce(buffer(0), buffer(1), count, dtype, op, {.algorithm = algorithm});
  };
}

Body broadcast(std::int64_t count, int root) {
  return [=](Communicator& c) { c.broadcast(buffer(0), buffer(1), count, DType::kF32, root); };
}

std::vector<Variant> variants(std::int64_t count) {
  const std::string n = std::to_string(count);
  const std::string n1 = std::to_string(count + 1);
  return {
      {"count", all_reduce(count), all_reduce(count + 1), "of " + n + " f32", "of " + n1 + " f32"},
      {"dtype", all_reduce(count), all_reduce(count, DType::kI32), n + " f32", n + " i32"},
      {"reduction", all_reduce(count), all_reduce(count, DType::kF32, ReduceOp::kMax), ", sum",
       ", max"},
      {"algorithm", all_reduce(count, DType::kF32, ReduceOp::kSum, "ring"),
       all_reduce(count, DType::kF32, ReduceOp::kSum, "circulant"), "all_reduce/ring",
       "all_reduce/circulant"},
      {"operation", all_reduce(count), broadcast(count, 0), "all_reduce", "broadcast"},
      {"root", broadcast(count, 0), broadcast(count, 1), "root 0", "root 1"},
      {"form", all_reduce(count),
       [=](Communicator& c) {
         c.start_all_reduce(buffer(0), buffer(1), count, DType::kF32, ReduceOp::kSum).wait();
       },
       "all_reduce", "started all_reduce"},
      {"set-up", all_reduce(count), [](Communicator& c) { (void)c.split(0, 0); }, "all_reduce",
       "split"},
      {"absence", all_reduce(count), [](Communicator&) {}, "all_reduce", "barrier"},
  };
}

// Runs `body` and then a barrier, on every rank; returns what each rank's error said.
std::vector<std::string> errors_of(int world, const Options& options, const Body& body,
                                   Failures& failures, Cause cause) {
  std::vector<std::string> texts(static_cast<std::size_t>(world));
  Communicator::run_threads(world, options, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    try {
      body(communicator);
      communicator.barrier();
      communicator.barrier();
      failures.add("rank " + std::to_string(rank) + " noticed nothing");
    } catch (const Error& error) {
      texts[rank] = error.what();
      if (error.cause() != cause && error.cause() != Cause::kPoisoned) {
        failures.add("rank " + std::to_string(rank) + " threw another cause: " + texts[rank]);
      }
      try {
        communicator.barrier();
        failures.add("a poisoned communicator worked on");
      } catch (const Error&) {
      }
    }
  });
  return texts;
}

TEST(Failure, MismatchedCallsAreNamedOnEveryRank) {
  Failures failures;
  for (const int world : {2, 3, 5}) {
    for (const std::int64_t count :
         {std::int64_t{0}, std::int64_t{3}, std::int64_t{3000}, std::int64_t{100'000}}) {
      for (const Variant& variant : variants(count)) {
        const auto start = steady_clock::now();
        const auto texts = errors_of(
            world, {.timeout_s = kDeadlineS},
            [&](Communicator& c) { (c.rank() == world - 1 ? variant.wrong : variant.right)(c); },
            failures, Cause::kMismatch);
        const std::string where =
            variant.name + ", world " + std::to_string(world) + ", count " + std::to_string(count);
        EXPECT_LT(seconds_since(start), kAtOnceS) << where;
        for (const std::string& text : texts) {
          EXPECT_NE(text.find(variant.right_words), std::string::npos) << where << ": " << text;
          EXPECT_NE(text.find(variant.wrong_words), std::string::npos) << where << ": " << text;
          EXPECT_EQ(text.find('\n'), std::string::npos) << text;
        }
      }
    }
  }
}

// Equal in sum; and of all_to_all_v, where no rank knows another's, one pair that disagrees.
TEST(Failure, PartsThatDisagreeAreFound) {
  const std::vector<std::int64_t> left{3000, 2000};
  const std::vector<std::int64_t> right{2000, 3000};
  Failures failures;
  for (const std::string& text : errors_of(
           2, {.timeout_s = 30},
           [&](Communicator& c) {
             c.all_gather_v(buffer(0), buffer(1), c.rank() == 0 ? left : right, DType::kU8);
           },
           failures, Cause::kMismatch)) {
    EXPECT_NE(text.find("all_gather_v/direct of 5000 u8 in parts"), std::string::npos) << text;
  }
  // By lanes, in boxes, and where one rank has little and the other much.
  struct Sizes {
    std::int64_t to_peer;
    std::int64_t from_peer;
    std::int64_t expected;  // of what rank 1 sends
  };
  for (const Sizes sizes : {Sizes{3000, 2000, 3000}, {3, 2, 3}, {0, 1, 0}, {4000, 2, 3}}) {
    for (const std::string& text : errors_of(
             2, {.timeout_s = 30},
             [&](Communicator& c) {
               const std::vector<std::int64_t> sent =
                   c.rank() == 0 ? std::vector<std::int64_t>{1, sizes.to_peer}
                                 : std::vector<std::int64_t>{sizes.from_peer, 1};
               const std::vector<std::int64_t> got =
                   c.rank() == 0 ? std::vector<std::int64_t>{1, sizes.expected}
                                 : std::vector<std::int64_t>{sizes.to_peer, 1};
               c.all_to_all_v(buffer(0), sent, buffer(1), got, DType::kU8);
               // The rank whose own sizes agree learns of it in what comes next.
               c.barrier();
             },
             failures, Cause::kMismatch)) {
      EXPECT_NE(text.find("all_to_all_v"), std::string::npos) << text;
      EXPECT_NE(text.find("another count"), std::string::npos) << text;
    }
  }
}

TEST(Failure, APartForOneselfOfTwoSizesIsRefused) {
  Communicator::run_threads(1, {}, [](Communicator& c) {
    const std::vector<std::int64_t> sent{2};
    const std::vector<std::int64_t> got{3};
    EXPECT_THROW(c.all_to_all_v(buffer(0), sent, buffer(1), got, DType::kU8), UsageError);
  });
}

TEST(Failure, MismatchedMessagesAreNamedOnBothRanks) {
  Failures failures;
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{3}, std::int64_t{100'000}}) {
    const auto texts = errors_of(
        2, {.timeout_s = kDeadlineS},
        [&](Communicator& c) {
          if (c.rank() == 0) {
            c.start_send(buffer(0), count, DType::kF32, 1, 2).wait();
          } else {
            c.recv(buffer(0), count + 1, DType::kF32, 0, 2);
          }
        },
        failures, Cause::kMismatch);
    for (const std::string& text : texts) {
      EXPECT_NE(text.find("of " + std::to_string(count) + " f32"), std::string::npos) << text;
      EXPECT_NE(text.find("of " + std::to_string(count + 1) + " f32"), std::string::npos) << text;
    }
  }
}

TEST(Failure, ALateRankIsNamedAtTheDeadline) {
  Failures failures;
  std::atomic<int> threw{0};
  const auto start = steady_clock::now();
  const auto texts = errors_of(
      3, {.timeout_s = 1},
      [&](Communicator& c) {
        c.barrier();
        if (c.rank() != 1) {
          try {
            return all_reduce(10)(c);
          } catch (const Error&) {
            ++threw;
            throw;
          }
        }
        while (threw < 2 && seconds_since(start) < kDeadlineS) usleep(1000);
        c.barrier();
      },
      failures, Cause::kTimeout);
  EXPECT_LT(seconds_since(start), kAtOnceS);
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("rank 1 has finished call 1 (barrier"), std::string::npos) << text;
    EXPECT_NE(text.find("is in call 2 (all_reduce"), std::string::npos) << text;
    EXPECT_NE(text.find("for 1 s"), std::string::npos) << text;
  }
}

TEST(Failure, ARankThatThrowsStopsTheOthersAtOnce) {
  for (const int world : {2, 4}) {
    const auto start = steady_clock::now();
    std::mutex mutex;
    std::set<std::string> texts;
    try {
      Communicator::run_threads(world, {.timeout_s = kDeadlineS}, [&](Communicator& c) {
        c.barrier();
        try {
          const auto half = c.split(c.rank() % 2, 0);
          if (c.rank() == world - 1) throw std::runtime_error("out of data");
          all_reduce(1000)(*half);
          all_reduce(1000)(c);
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          texts.insert(error.what());
          throw;
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::exception&) {
    }
    EXPECT_LT(seconds_since(start), kAtOnceS);
    EXPECT_EQ(texts.size(), static_cast<std::size_t>(world - 1));
    for (const std::string& text : texts)
      EXPECT_NE(text.find("left by an exception"), std::string::npos) << text;
  }
}

std::set<std::string> shared_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("sinew")) names.insert(name);
  }
  return names;
}

TEST(Failure, AKilledRankIsNoticedAndLeavesNothingBehind) {
  const std::set<std::string> before = shared_files();
  for (const int world : {2, 4}) {
    for (int moment = 0; moment < 4; ++moment) {
      const auto start = steady_clock::now();
      const auto outcomes = run_processes(world, [&](Bootstrap& bootstrap) -> std::string {
        const Copies copies = moment % 2 == 0 ? Copies::kAuto : Copies::kPull;
        const auto c =
            Communicator::from_bootstrap(bootstrap, {.timeout_s = kDeadlineS, .copies = copies});
        for (int call = 0; call < 20; ++call) {
          all_reduce(call * 10'000)(*c);
          if (c->rank() == 1 && call == 5 * moment) kill(getpid(), SIGKILL);
        }
        return "noticed nothing";
      });
      EXPECT_LT(seconds_since(start), kAtOnceS);
      for (int rank = 0; rank < world; ++rank) {
        const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
        EXPECT_EQ(outcome.killed(), rank == 1);
        if (rank == 1) continue;
        EXPECT_TRUE(outcome.threw) << outcome.text;
        EXPECT_NE(outcome.text.find("rank 1 (process "), std::string::npos) << outcome.text;
        EXPECT_NE(outcome.text.find("is dead"), std::string::npos) << outcome.text;
      }
    }
  }
  EXPECT_EQ(shared_files(), before);
}

// Who asks again and again whether a call is done hears what a waiting rank would.
TEST(Failure, ARankThatOnlyTestsNoticesWhatItsPeerDid) {
  struct Deed {
    std::function<void(Communicator&)> of_peer;
    std::string words;
  };
  const std::vector<Deed> deeds = {
      {[](Communicator&) { kill(getpid(), SIGKILL); }, "is dead"},
      {[](Communicator&) {}, "has destroyed its communicator"},
      {[](Communicator&) { throw std::runtime_error("no more"); }, "left by an exception"},
      {[](Communicator& c) { c.start_broadcast(buffer(0), buffer(1), 1, DType::kF32, 0).wait(); },
       "broadcast"},
  };
  for (const bool message : {false, true}) {
    for (const Deed& deed : deeds) {
      if (message && deed.words == "broadcast") continue;  // a message does not exclude it
      const auto outcomes = run_processes(2, [&](Bootstrap& bootstrap) -> std::string {
        const auto c = Communicator::from_bootstrap(bootstrap, {.timeout_s = kDeadlineS});
        c->barrier();
        if (c->rank() == 1) {
          deed.of_peer(*c);
          return "";
        }
        Request request =
            message ? c->start_recv(buffer(0), 1, DType::kF32, 1)
                    : c->start_all_reduce(buffer(0), buffer(1), 1, DType::kF32, ReduceOp::kSum);
        const auto start = steady_clock::now();
        while (!request.test())
          if (seconds_since(start) > kAtOnceS) return "noticed nothing";
        return "was told that it is done";
      });
      EXPECT_TRUE(outcomes[0].threw) << deed.words << ": " << outcomes[0].text;
      EXPECT_NE(outcomes[0].text.find(deed.words), std::string::npos) << outcomes[0].text;
    }
  }
}

int soak_kills() {
  const char* text = std::getenv("SINEW_SOAK_KILLS");
  return text != nullptr ? static_cast<int>(std::strtol(text, nullptr, 10)) : 8;
}

// The parent kills at a moment that nothing in the rank knows of.
TEST(Soak, KillsAtRandomMomentsAreNoticedAndLeaveNothingBehind) {
  const Philox philox(test_seed(), 5);
  const std::set<std::string> before = shared_files();
  for (int kill_number = 0; kill_number < soak_kills(); ++kill_number) {
    const auto words = philox.words(static_cast<std::uint64_t>(kill_number), 0);
    const int world = 2 + static_cast<int>(words[0] % 3);
    const int victim = static_cast<int>(words[1] % static_cast<std::uint32_t>(world));
    const std::uint64_t delay_us = words[2] % 20'000;
    const auto outcomes = run_processes(world, [&](Bootstrap& bootstrap) -> std::string {
      const auto c = Communicator::from_bootstrap(bootstrap, {.timeout_s = kDeadlineS});
      if (c->rank() == victim) {
        // A timer of the kernel ends the process wherever it is then.
        signal(SIGALRM, [](int) { kill(getpid(), SIGKILL); });
        const itimerval timer{{}, {0, static_cast<suseconds_t>(1 + delay_us)}};
        setitimer(ITIMER_REAL, &timer, nullptr);
      }
      for (std::int64_t call = 0;; ++call) all_reduce(call % 7 * 5'000)(*c);
    });
    for (int rank = 0; rank < world; ++rank) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
      EXPECT_EQ(outcome.killed(), rank == victim) << "kill " << kill_number;
      if (rank == victim) continue;
      EXPECT_NE(outcome.text.find("is dead"), std::string::npos) << outcome.text;
    }
  }
  EXPECT_EQ(shared_files(), before);
}

// Of processes, whose large calls take other ways than those of threads.
TEST(Failure, MismatchedLargeCallsOfProcessesAreNamedOnEveryRank) {
  for (const Variant& variant : variants(100'000)) {
    const auto outcomes = run_processes(4, [&](Bootstrap& bootstrap) -> std::string {
      const auto c = Communicator::from_bootstrap(bootstrap, {.timeout_s = kDeadlineS});
      all_reduce(50'000)(*c);
      (c->rank() == 3 ? variant.wrong : variant.right)(*c);
      c->barrier();
      c->barrier();
      return "noticed nothing";
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.threw) << variant.name << ": " << outcome.text;
      for (const std::string& words : {variant.right_words, variant.wrong_words})
        EXPECT_NE(outcome.text.find(words), std::string::npos)
            << variant.name << ": " << outcome.text;
    }
  }
}

// The kernel refuses reads between processes, as Yama or a container's seccomp profile does.
void forbid_reads() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    throw std::runtime_error("this kernel takes no filter of system calls");
  }
}

TEST(Failure, WhereReadsBetweenProcessesAreRefusedRunsGoOnAndSayWhy) {
  const auto outcomes = run_processes(2, [&](Bootstrap& bootstrap) -> std::string {
    if (bootstrap.rank() == 1) forbid_reads();
    const auto c = Communicator::from_bootstrap(bootstrap, {.copies = Copies::kPull});
    std::string wrong =
        run_case(*c, {.op = sched::Collective::kAllGather, .algorithm = "auto", .count = 200'000});
    if (c->rank() == 0) return wrong + c->copies_denied();
    if (c->copies_denied().find("Operation not permitted") == std::string::npos)
      wrong += "no reason given: " + c->copies_denied();
    return wrong;
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.text, "");
}

TEST(Failure, MemoryOfAPeerThatCannotBeReadIsAnErrorOnEveryRank) {
  for (const std::int64_t moment : {0, 3}) {
    const auto start = steady_clock::now();
    const auto outcomes = run_processes(3, [&](Bootstrap& bootstrap) -> std::string {
      Options options{.timeout_s = 30, .copies = Copies::kPull};
      if (bootstrap.rank() == 2)
        options.wrap_transport = with_faults({.kind = Faults::Kind::kUnread, .at_message = moment});
      const auto c = Communicator::from_bootstrap(bootstrap, options);
      for (int call = 0; call < 20; ++call) all_reduce(100'000)(*c);
      return "noticed nothing";
    });
    EXPECT_LT(seconds_since(start), 5);
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.threw) << outcome.text;
      EXPECT_NE(outcome.text.find("cannot be read"), std::string::npos) << outcome.text;
    }
  }
}

// The peer still names its part of a block that this rank no longer maps.
TEST(Failure, SymmetricMemoryFreedTooEarlyIsAnErrorOnEveryRank) {
  const auto outcomes = run_processes(2, [&](Bootstrap& bootstrap) -> std::string {
    const auto c = Communicator::from_bootstrap(bootstrap, {.timeout_s = kDeadlineS});
    constexpr std::int64_t kCount = 200'000;
    Symmetric memory = c->allocate(kCount * sizeof(float));
    void* data = memory.get();
    std::vector<float> plain(kCount);
    if (c->rank() == 1) {
      memory.reset();
      data = plain.data();
    }
    c->all_reduce(data, data, kCount, DType::kF32, ReduceOp::kSum);
    c->barrier();
    return "noticed nothing";
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.threw) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 1: the symmetric memory that rank 0 uses is not mapped here"),
              std::string::npos)
        << outcome.text;
  }
}

TEST(Failure, ARankThatEndsEarlyIsNoticed) {
  const auto start = steady_clock::now();
  const auto outcomes = run_processes(3, [&](Bootstrap& bootstrap) -> std::string {
    const auto c = Communicator::from_bootstrap(bootstrap, {.timeout_s = kDeadlineS});
    c->barrier();
    if (c->rank() == 2) return "left";
    all_reduce(10)(*c);
    return "noticed nothing";
  });
  EXPECT_LT(seconds_since(start), kAtOnceS);
  for (const int rank : {0, 1}) {
    const std::string& text = outcomes[static_cast<std::size_t>(rank)].text;
    EXPECT_NE(text.find("rank 2 has destroyed its communicator"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace sinew::comm::testing
