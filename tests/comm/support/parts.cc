#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "sched/collective/registry.h"
#include "tests/comm/support/exchanges.h"

namespace sinew::comm::testing {

namespace {

using sched::Collective;
using Values = std::vector<std::int32_t>;
using Counts = std::vector<std::int64_t>;

constexpr std::int32_t kUntouched = -77;

// What `from` holds for `to` at index i; sums over 16 ranks stay exact.
std::int32_t value(int from, int to, std::int64_t i) {
  return static_cast<std::int32_t>((from * 7919 + to * 104'729 + i * 31) % 1'000'003);
}

std::int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Part by part: what `from` holds for each rank, or what each rank holds for `to`.
Values parts_from(int from, const Counts& counts) {
  Values all;
  for (int to = 0; to < static_cast<int>(counts.size()); ++to) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(to)]; ++i)
      all.push_back(value(from, to, i));
  }
  return all;
}
Values parts_to(int to, const Counts& counts) {
  Values all;
  for (int from = 0; from < static_cast<int>(counts.size()); ++from) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(from)]; ++i)
      all.push_back(value(from, to, i));
  }
  return all;
}
Values part(int from, int to, std::int64_t count) {
  Values all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(value(from, to, i));
  return all;
}

struct Case {
  Collective op;
  std::string_view algorithm;
  Counts counts;
  int root;
  bool in_place;
  bool started;
};

class Run {
 public:
  Run(Communicator& communicator, const Case& test) : communicator_(communicator), test_(test) {
    const int rank = communicator.rank();
    const auto own = test.counts[static_cast<std::size_t>(rank)];
    switch (test.op) {
      case Collective::kAllGather:
      case Collective::kGather:
        input_ = part(rank, 0, own);
        if (test.op == Collective::kAllGather || rank == test.root) {
          for (int from = 0; from < communicator.world(); ++from) {
            const Values one = part(from, 0, test.counts[static_cast<std::size_t>(from)]);
            expected_.insert(expected_.end(), one.begin(), one.end());
          }
        }
        break;
      case Collective::kReduceScatter:
        input_ = parts_from(rank, test.counts);
        expected_.assign(static_cast<std::size_t>(own), 0);
        for (int from = 0; from < communicator.world(); ++from) {
          for (std::int64_t i = 0; i < own; ++i)
            expected_[static_cast<std::size_t>(i)] += value(from, rank, i);
        }
        break;
      case Collective::kScatter:
        if (rank == test.root) input_ = parts_from(rank, test.counts);
        expected_ = part(test.root, rank, own);
        break;
      default:  // all_to_all: rank r sends counts[(r + to) mod world] to `to`
        for (int peer = 0; peer < communicator.world(); ++peer) {
          const auto shift = static_cast<std::size_t>((rank + peer) % communicator.world());
          own_counts_.push_back(test.counts[shift]);
        }
        input_ = parts_from(rank, own_counts_);
        expected_ = parts_to(rank, own_counts_);
        break;
    }
  }

  std::string check() {
    Values output(expected_.size() + 1, kUntouched);
    std::int32_t* input = input_.data();
    std::int32_t* target = output.data();
    if (test_.in_place) place(input, target);
    call(input_.empty() ? nullptr : input, expected_.empty() ? nullptr : target);
    if (!std::equal(expected_.begin(), expected_.end(), target)) return words("a wrong result");
    if (output.back() != kUntouched) return words("bytes outside the output were written");
    return {};
  }

 private:
  // The smaller buffer becomes a part of the larger one.
  void place(std::int32_t*& input, std::int32_t*& target) {
    const int rank = communicator_.rank();
    const std::int64_t before =
        std::accumulate(test_.counts.begin(), test_.counts.begin() + rank, std::int64_t{0});
    if (test_.op == Collective::kAllGather || test_.op == Collective::kGather) {
      if (expected_.empty()) return;
      std::copy(input_.begin(), input_.end(), target + before);
      input = target + before;
    } else if (!input_.empty()) {
      target = input + before;
    }
  }

  void call(const std::int32_t* input, std::int32_t* output) {
    Communicator& c = communicator_;
    const Call how{.algorithm = test_.algorithm};
    const Counts& n = test_.counts;
    constexpr DType kType = DType::kI32;
    Request request;
    switch (test_.op) {
      case Collective::kAllGather:
        if (test_.started)
          request = c.start_all_gather_v(input, output, n, kType, how);
        else
          c.all_gather_v(input, output, n, kType, how);
        break;
      case Collective::kGather:
        if (test_.started)
          request = c.start_gather_v(input, output, n, kType, test_.root, how);
        else
          c.gather_v(input, output, n, kType, test_.root, how);
        break;
      case Collective::kReduceScatter:
        if (test_.started)
          request = c.start_reduce_scatter_v(input, output, n, kType, ReduceOp::kSum, how);
        else
          c.reduce_scatter_v(input, output, n, kType, ReduceOp::kSum, how);
        break;
      case Collective::kScatter:
        if (test_.started)
          request = c.start_scatter_v(input, output, n, kType, test_.root, how);
        else
          c.scatter_v(input, output, n, kType, test_.root, how);
        break;
      default:
        if (test_.started)
          request = c.start_all_to_all_v(input, own_counts_, output, own_counts_, kType, how);
        else
          c.all_to_all_v(input, own_counts_, output, own_counts_, kType, how);
        break;
    }
    if (request.pending()) request.wait();
  }

  [[nodiscard]] std::string words(std::string_view what) const {
    return fmt::format("{}_v/{} of {} elements, root {}{}{}: {} on rank {} of {}",
                       sched::name_of(test_.op), test_.algorithm, sum(test_.counts), test_.root,
                       test_.in_place ? ", in place" : "", test_.started ? ", started" : "", what,
                       communicator_.rank(), communicator_.world());
  }

  Communicator& communicator_;
  const Case& test_;
  Counts own_counts_;
  Values input_;
  Values expected_;
};

// all_to_all_v where some ranks have little and some much, or just so much that it is little: calls
// that go different ways, one after the other, must not mix.
std::string check_own_sizes(Communicator& communicator) {
  const int world = communicator.world();
  const int rank = communicator.rank();
  const std::int64_t room = 2048 / std::int64_t{sizeof(std::int32_t)};
  const auto size_of_pair = [&](int shape, int from, int to) -> std::int64_t {
    const bool last = from == world - 1;
    switch (shape) {
      case 0:
        return (from + 2 * to) % 3;
      case 1:
        return last ? room + to : 1;
      case 2:
        return last ? 1 : room;
      case 3:
        return from == 0 ? 0 : 14;
      default:  // the whole input one element around what a box can hold
        return to == 0 ? room - (world + 1) / 2 - 1 + shape % 3 : 0;
    }
  };
  for (int turn = 0; turn < 60; ++turn) {
    const int shape = turn * turn % 7;
    Counts sent;
    Counts got;
    Values input;
    Values expected;
    for (int peer = 0; peer < world; ++peer) {
      sent.push_back(size_of_pair(shape, rank, peer));
      got.push_back(size_of_pair(shape, peer, rank));
      for (std::int64_t i = 0; i < sent.back(); ++i) input.push_back(value(rank, peer, i + turn));
      for (std::int64_t i = 0; i < got.back(); ++i) expected.push_back(value(peer, rank, i + turn));
    }
    Values output(expected.size() + 1, kUntouched);
    communicator.all_to_all_v(input.data(), sent, output.data(), got, DType::kI32);
    expected.push_back(kUntouched);
    if (output != expected)
      return fmt::format("all_to_all_v of shape {}: a wrong result on rank {} of {}, turn {}",
                         shape, rank, world, turn);
  }
  return {};
}

bool has_parts(Collective op) {
  return op == Collective::kAllGather || op == Collective::kGather ||
         op == Collective::kReduceScatter || op == Collective::kScatter;
}

}  // namespace

std::string check_parts(Communicator& communicator) {
  const int world = communicator.world();
  std::vector<Counts> shapes(4, Counts(static_cast<std::size_t>(world), 0));
  for (int rank = 0; rank < world; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    shapes[1][at] = rank % 3;
    shapes[2][at] = rank == world - 1 ? 1000 : 0;
    shapes[3][at] = 70'000 / (rank + 1) + 13 * rank;
  }
  int turn = 0;
  const auto run = [&](Collective op, std::string_view algorithm) -> std::string {
    for (const Counts& counts : shapes) {
      const bool in_place = turn % 2 == 1 && op != Collective::kAllToAll;
      const Case test{op, algorithm, counts, turn % world, in_place, turn % 3 == 0};
      ++turn;
      const std::string wrong = Run(communicator, test).check();
      if (!wrong.empty()) return wrong;
    }
    return {};
  };
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (!has_parts(row.op) || !row.refuse({.world = world}).empty()) continue;
    if (std::string wrong = run(row.op, row.name); !wrong.empty()) return wrong;
  }
  for (const std::string_view name : {"auto", "direct"}) {
    if (std::string wrong = run(Collective::kAllToAll, name); !wrong.empty()) return wrong;
  }
  return check_own_sizes(communicator);
}

}  // namespace sinew::comm::testing
