#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/group.h"
#include "sched/base/error.h"
#include "tests/comm/support/exchanges.h"

namespace sinew::comm::testing {

namespace {

using Values = std::vector<std::int64_t>;

std::int64_t size_between(int from, int to, std::int64_t most) {
  return (from * 3 + to * 5) % 4 == 0 ? 0 : most / (1 + (from + to) % 3);
}

Values message(int from, int to, std::int64_t most) {
  Values values(static_cast<std::size_t>(size_between(from, to, most)));
  std::iota(values.begin(), values.end(), from * 1'000'000 + to * 1000);
  return values;
}

// Even ranks send first and odd ones receive first, to and from the peers in opposite orders.
std::string everyone_to_everyone(Communicator& c, std::int64_t most) {
  const int rank = c.rank();
  const int world = c.world();
  std::vector<Values> out;
  std::vector<Values> in;
  for (int peer = 0; peer < world; ++peer) {
    out.push_back(message(rank, peer, most));
    in.emplace_back(static_cast<std::size_t>(size_between(peer, rank, most)), -1);
  }
  const auto size = [](const Values& values) { return static_cast<std::int64_t>(values.size()); };
  const auto send_all = [&] {
    for (int peer = world - 1; peer >= 0; --peer) {
      const Values& values = out[static_cast<std::size_t>(peer)];
      c.send(values.empty() ? nullptr : values.data(), size(values), DType::kI64, peer);
    }
  };
  const auto receive_all = [&] {
    for (int peer = 0; peer < world; ++peer) {
      Values& values = in[static_cast<std::size_t>(peer)];
      c.recv(values.empty() ? nullptr : values.data(), size(values), DType::kI64, peer);
    }
  };
  group([&] {
    if (rank % 2 == 0) send_all();
    receive_all();
    if (rank % 2 != 0) send_all();
  });
  for (int peer = 0; peer < world; ++peer) {
    if (in[static_cast<std::size_t>(peer)] != message(peer, rank, most))
      return fmt::format("rank {}: the grouped message from {} of at most {} is wrong", rank, peer,
                         most);
  }
  return {};
}

// One sum per call; more calls than a communicator has places for.
class Sums {
 public:
  Sums(Communicator& communicator, int calls, std::int64_t count)
      : communicator_(communicator), count_(count) {
    for (int call = 0; call < calls; ++call)
      values_.emplace_back(static_cast<std::size_t>(count), communicator.rank() + call);
  }
  void make(std::size_t first, std::size_t end) {
    for (std::size_t call = first; call < end; ++call) {
      communicator_.all_reduce(values_[call].data(), values_[call].data(), count_, DType::kI64,
                               ReduceOp::kSum);
    }
  }
  [[nodiscard]] bool right() const {
    const std::int64_t world = communicator_.world();
    for (std::size_t call = 0; call < values_.size(); ++call) {
      const std::int64_t want = world * (world - 1) / 2 + world * static_cast<std::int64_t>(call);
      for (const std::int64_t value : values_[call]) {
        if (value != want) return false;
      }
    }
    return true;
  }

 private:
  Communicator& communicator_;
  std::int64_t count_;
  std::vector<Values> values_;
};

std::string messages_between_collectives(Communicator& c) {
  const int world = c.world();
  const int next = (c.rank() + 1) % world;
  const int previous = (c.rank() + world - 1) % world;
  Sums sums(c, 7, 3000);
  Values out(40'000, c.rank());
  Values in(40'000, -1);
  const auto exchange = [&] {
    c.send(out.data(), 40'000, DType::kI64, next, 2);
    c.recv(in.data(), 40'000, DType::kI64, previous, 2);
  };
  group([&] {
    // Each rank has its messages at another place among the collectives.
    const std::size_t place = static_cast<std::size_t>(c.rank()) % 8;
    sums.make(0, place);
    exchange();
    sums.make(place, 7);
    c.barrier();
  });
  if (!sums.right())
    return fmt::format("rank {}: a grouped sum beside messages is wrong", c.rank());
  if (in != Values(40'000, previous))
    return fmt::format("rank {}: a message beside grouped sums is wrong", c.rank());
  return {};
}

std::string two_communicators(Communicator& c) {
  const auto other = c.duplicate();
  Sums mine(c, 8, 2000);
  Sums theirs(*other, 8, 2000);
  group([&] {
    if (c.rank() % 2 == 0) mine.make(0, 8);
    group([&] { theirs.make(0, 8); });  // nested: part of the outer one
    if (c.rank() % 2 != 0) mine.make(0, 8);
    if (theirs.right() && c.world() > 1) throw std::runtime_error("the inner group was run");
  });
  if (mine.right() && theirs.right()) return {};
  return fmt::format("rank {}: sums of two communicators in one group are wrong", c.rank());
}

// What a call points at besides its buffers may be gone when the group is run.
std::string arguments_are_copied(Communicator& c) {
  const int world = c.world();
  auto counts = std::make_unique<Values>(static_cast<std::size_t>(world), 3);
  auto factor = std::make_unique<std::int64_t>(c.rank() + 1);
  auto algorithm = std::make_unique<std::string>("ring");
  const Values input(static_cast<std::size_t>(3 * world), 2);
  Values gathered(input.size(), -1);
  Values sum(input.size(), -1);
  group([&] {
    c.all_gather_v(input.data(), gathered.data(), *counts, DType::kI64, {.algorithm = *algorithm});
    c.all_reduce(input.data(), sum.data(), 3 * world, DType::kI64, ReduceOp::kSum,
                 {.factor = factor.get()});
    *counts = Values(static_cast<std::size_t>(world), 77);
    *factor = 99;
    *algorithm = "nothing";
    counts.reset();
    factor.reset();
    algorithm.reset();
  });
  const std::int64_t want = std::int64_t{world} * (world + 1);
  if (gathered == input && sum == Values(input.size(), want)) return {};
  return fmt::format("rank {}: a grouped call used arguments of after it", c.rank());
}

template <typename Body>
bool is_refused(const Body& body) {
  try {
    body();
  } catch (const UsageError&) {
    return true;
  }
  return false;
}

std::string refusals(Communicator& c) {
  Values values(10, c.rank());
  bool at_once = true;
  const bool at_the_end = is_refused([&] {
    group([&] {
      c.all_reduce(values.data(), values.data(), 10, DType::kI64, ReduceOp::kSum);
      const auto refuse = [&](const auto& call) { at_once = at_once && is_refused(call); };
      refuse([&] { c.send(values.data(), 10, DType::kI64, c.world()); });
      refuse([&] { c.recv(nullptr, 10, DType::kI64, 0); });
      refuse([&] { c.send(values.data(), 10, DType::kI64, 0, Communicator::kTags); });
      refuse([&] { c.broadcast(values.data(), values.data(), -1, DType::kI64, 0); });
      refuse([&] { c.barrier({.algorithm = "fastest"}); });
      refuse([&] { static_cast<void>(c.start_barrier()); });
      refuse([&] { static_cast<void>(c.start_send(values.data(), 10, DType::kI64, 0)); });
      refuse([&] { static_cast<void>(c.duplicate()); });
      refuse([&] { static_cast<void>(c.allocate(8)); });
    });
  });
  if (!at_once || !at_the_end)
    return fmt::format("rank {}: a wrong call in a group was not refused {}", c.rank(),
                       at_once ? "at its end" : "where it was made");
  if (values != Values(10, c.rank()))
    return fmt::format("rank {}: part of a refused group was done", c.rank());
  // A group that is left by an exception is forgotten.
  try {
    group([&] {
      c.barrier();
      throw std::runtime_error("leave");
    });
  } catch (const std::runtime_error&) {
    c.barrier();
  }
  group([] {});
  return {};
}

}  // namespace

std::string check_groups(Communicator& communicator) {
  for (const std::int64_t most : {4, 300, 5000, 120'000}) {
    if (std::string wrong = everyone_to_everyone(communicator, most); !wrong.empty()) return wrong;
  }
  for (const auto check :
       {messages_between_collectives, two_communicators, arguments_are_copied, refusals}) {
    if (std::string wrong = check(communicator); !wrong.empty()) return wrong;
  }
  return {};
}

std::string check_duplicates(Communicator& communicator) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  auto first = communicator.duplicate();
  const auto second = first->duplicate();
  if (second->rank() != rank || second->world() != world)
    return fmt::format("rank {}: a duplicate has other ranks", rank);
  const int next = (rank + 1) % world;
  const int previous = (rank + world - 1) % world;
  Values a(5000, 1);
  Values b(5000, 2);
  Values from_a(5000, -1);
  Values from_b(5000, -1);
  Values sum(5000, rank);
  // The same peer and tag on both, received in the other order; a call under way on each.
  Request on_first =
      first->start_all_reduce(sum.data(), sum.data(), 5000, DType::kI64, ReduceOp::kSum);
  Request to_a = first->start_send(a.data(), 5000, DType::kI64, next, 1);
  Request to_b = second->start_send(b.data(), 5000, DType::kI64, next, 1);
  second->recv(from_b.data(), 5000, DType::kI64, previous, 1);
  first->recv(from_a.data(), 5000, DType::kI64, previous, 1);
  second->barrier();
  to_a.wait();
  to_b.wait();
  on_first.wait();
  if (from_a != a || from_b != b || sum != Values(5000, std::int64_t{world} * (world - 1) / 2))
    return fmt::format("rank {}: calls of a communicator and its duplicate were mixed", rank);
  // Ranks end one at other times than their peers use what was made from it.
  if (rank % 2 == 0) first.reset();
  std::int64_t one = 1;
  second->all_reduce(&one, &one, 1, DType::kI64, ReduceOp::kSum);
  first.reset();
  if (one != world) return fmt::format("rank {}: a duplicate of what is gone is wrong", rank);
  Symmetric memory;
  {
    const auto third = second->duplicate();
    memory = third->allocate(4096);
    memory[4095] = std::byte{7};
    third->barrier();
  }
  communicator.barrier();
  return memory[4095] == std::byte{7} ? "" : fmt::format("rank {}: memory went early", rank);
}

}  // namespace sinew::comm::testing
