#include "sched/collective/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

Contract contract_of(const Algorithm& algorithm, const Params& params) {
  Contract contract;
  contract.op = algorithm.op;
  contract.world = params.world;
  contract.root = contract.rooted() ? params.root : 0;
  contract.chunks_per_block = algorithm.chunks_per_block(params);
  return contract;
}

}  // namespace

std::string any_world(const Params&) { return {}; }

std::string power_of_two(const Params& params) {
  if (is_power_of_two(params.world)) return {};
  return "world " + std::to_string(params.world) +
         " is not a power of two; legal values: 1, 2, 4, 8, ...";
}

std::string even_world(const Params& params) {
  if (params.world == 1 || params.world % 2 == 0) return {};
  return "world " + std::to_string(params.world) + " is odd; legal values: 1, 2, 4, 6, 8, ...";
}

int one_chunk(const Params&) { return 1; }
int chunk_per_rank(const Params& params) { return params.world; }

namespace {

struct Listed {
  const Algorithm& row;
  int radix = 0;  // 0: the row's own
};

// What every loop sees: of families a few.
const std::array kListed = {
    Listed{kRingAllReduce},
    Listed{kBinomialAllReduce},
    Listed{kRecursiveDoublingAllReduce},
    Listed{kHalvingDoublingAllReduce},
    Listed{kOneShotAllReduce},
    Listed{kTwoShotAllReduce},
    Listed{kCirculantAllReduce},
    Listed{kCirculantAllReduce, 4},
    Listed{kDoubleTreeAllReduce},
    Listed{kBidirectionalRingAllReduce},
    Listed{kRecursiveMultiplyingAllReduce},
    Listed{kRecursiveMultiplyingAllReduce, 3},
    Listed{kRecursiveMultiplyingAllReduce, 8},
    Listed{kSwingAllReduce},
    Listed{kPatAllReduce},
    Listed{kHierarchicalAllReduce},

    Listed{kRingReduceScatter},
    Listed{kHalvingReduceScatter},
    Listed{kDirectReduceScatter},
    Listed{kCirculantReduceScatter},
    Listed{kCirculantReduceScatter, 4},
    Listed{kBidirectionalRingReduceScatter},
    Listed{kSwingReduceScatter},
    Listed{kPatReduceScatter},

    Listed{kRingAllGather},
    Listed{kRecursiveDoublingAllGather},
    Listed{kDirectAllGather},
    Listed{kCirculantAllGather},
    Listed{kCirculantAllGather, 4},
    Listed{kBruckAllGather},
    Listed{kBruckAllGather, 3},
    Listed{kBruckAllGather, 4},
    Listed{kBidirectionalRingAllGather},
    Listed{kNeighbourExchangeAllGather},
    Listed{kRecursiveMultiplyingAllGather},
    Listed{kRecursiveMultiplyingAllGather, 8},
    Listed{kSwingAllGather},
    Listed{kSparbitAllGather},
    Listed{kPatAllGather},

    Listed{kBinomialBroadcast},
    Listed{kDirectBroadcast},
    Listed{kDoubleTreeBroadcast},
    Listed{kChainBroadcast},
    Listed{kKnomialBroadcast},
    Listed{kKnomialBroadcast, 3},
    Listed{kKnomialBroadcast, 8},

    Listed{kBinomialReduce},
    Listed{kDirectReduce},
    Listed{kDoubleTreeReduce},
    Listed{kChainReduce},
    Listed{kKnomialReduce},
    Listed{kKnomialReduce, 3},
    Listed{kKnomialReduce, 8},

    Listed{kBinomialGather},
    Listed{kDirectGather},

    Listed{kBinomialScatter},
    Listed{kDirectScatter},

    Listed{kPairwiseAllToAll},
    Listed{kDirectAllToAll},
    Listed{kBruckAllToAll},
    Listed{kBruckAllToAll, 3},
    Listed{kBruckAllToAll, 4},

    Listed{kBinomialBarrier},
    Listed{kRecursiveDoublingBarrier},
    Listed{kDirectBarrier},
    Listed{kDisseminationBarrier},
    Listed{kDisseminationBarrier, 4},
};

// Of a name that a person can write: a row of another radix has its family's before the last '_'.
std::string name_with(const Algorithm& row, int radix) {
  return std::string(row.name) + "_" + std::to_string(radix);
}

class Table {
 public:
  Table() {
    for (const Listed& listed : kListed) add(listed.row, listed.radix);
    listed_ = rows_.size();
    for (const Listed& listed : kListed) {
      if (listed.row.radix == 0 || listed.radix != 0) continue;
      for (int radix = 2; radix <= kMaxRadix; ++radix) {
        if (find(listed.row.op, name_with(listed.row, radix)) == nullptr) add(listed.row, radix);
      }
    }
  }

  [[nodiscard]] std::span<const Algorithm> listed() const { return every().first(listed_); }
  [[nodiscard]] std::span<const Algorithm> every() const { return rows_; }
  [[nodiscard]] const Algorithm* find(Collective op, std::string_view name) const {
    for (const Algorithm& row : rows_) {
      if (row.op == op && row.name == name) return &row;
    }
    return nullptr;
  }

 private:
  void add(const Algorithm& row, int radix) {
    rows_.push_back(row);
    if (radix == 0) return;
    rows_.back().radix = radix;
    rows_.back().family = row.name;
    rows_.back().name = names_.emplace_back(name_with(row, radix));
  }

  std::deque<std::string> names_;  // of rows that have no constant
  std::vector<Algorithm> rows_;
  std::size_t listed_ = 0;
};

const Table& table() {
  static const Table kTable;
  return kTable;
}

}  // namespace

std::span<const Algorithm> algorithms() { return table().listed(); }
std::span<const Algorithm> every_algorithm() { return table().every(); }

const Algorithm* known_algorithm(Collective op, std::string_view name) {
  return table().find(op, name);
}

const Algorithm& find_algorithm(Collective op, std::string_view name) {
  if (const Algorithm* const row = known_algorithm(op, name); row != nullptr) return *row;
  std::string legal;
  bool has_families = false;
  for (const Algorithm& row : algorithms()) {
    const std::string forms = row.op == op ? legal_forms(row) : std::string();
    if (forms.empty()) continue;
    legal += (legal.empty() ? "" : ", ") + forms;
    has_families |= row.radix != 0;
  }
  throw UsageError("algorithm '" + std::string(name) + "' is unknown for " +
                   std::string(name_of(op)) + "; legal values: " +
                   (legal.empty() ? "none" : legal) + (has_families ? legal_radices() : ""));
}

std::size_t index_of(const Algorithm& row) {
  const std::ptrdiff_t index = &row - every_algorithm().data();
  CHECK_GE(index, 0);
  CHECK_LT(index, std::ssize(every_algorithm()));
  return static_cast<std::size_t>(index);
}

std::string legal_forms(const Algorithm& row) {
  if (!row.family.empty()) return {};
  return std::string(row.name) + (row.radix == 0 ? "" : ", " + std::string(row.name) + "_R");
}

std::string legal_radices() { return "; R from 2 to " + std::to_string(kMaxRadix); }

std::string cost_difference(const Algorithm& algorithm, const Params& params, const Cost& counted) {
  const Cost closed = algorithm.cost(params);
  const Contract contract = contract_of(algorithm, params);
  const auto agrees = [](double count, double form, double slack) {
    const double rounding = 1e-12 * std::max(1.0, count);
    return count <= form + rounding && count >= form - slack - rounding;
  };
  const double slack = algorithm.slack;
  const double slack_bytes = slack / contract.chunks();
  if (agrees(counted.rounds, closed.rounds, slack) &&
      agrees(counted.bytes, closed.bytes, slack_bytes) &&
      agrees(counted.reduced, closed.reduced, slack_bytes)) {
    return {};
  }
  return fmt::format(
      "counted {:g} rounds, {:g} m sent, {:g} m reduced; the closed form says {:g}, {:g} m, {:g} m",
      counted.rounds, counted.bytes, counted.reduced, closed.rounds, closed.bytes, closed.reduced);
}

// The closed forms fall and then rise in k, slowly around the least: a step of a quarter finds it.
int best_segments(const Algorithm& algorithm, Params params, const Prices& prices,
                  std::int64_t full_bytes) {
  if (!algorithm.segmented) return 1;
  int best = 1;
  double least = 0;
  for (int segments = 1; segments <= kMaxSegments; segments += 1 + segments / 4) {
    params.segments = segments;
    if (!algorithm.refuse(params).empty()) break;
    const double seconds = algorithm.cost(params).seconds(prices, full_bytes);
    if (segments > 1 && seconds >= least) break;
    best = segments;
    least = seconds;
  }
  return best;
}

Schedule generate(const Algorithm& algorithm, const Params& params, std::optional<int> keep) {
  if (params.world < 1 || params.world > kMaxWorld) {
    throw UsageError("world " + std::to_string(params.world) +
                     " is out of range; legal values: 1 to " + std::to_string(kMaxWorld));
  }
  if (params.root < 0 || params.root >= params.world) {
    throw UsageError("root " + std::to_string(params.root) + " is no rank; legal values: 0 to " +
                     std::to_string(params.world - 1));
  }
  if (params.segments < 1 || params.segments > kMaxSegments ||
      (params.segments != 1 && !algorithm.segmented)) {
    throw UsageError(std::string(name_of(algorithm.op)) + " by " + std::string(algorithm.name) +
                     ": segments " + std::to_string(params.segments) +
                     " is out of range; legal values: " +
                     (algorithm.segmented ? "1 to " + std::to_string(kMaxSegments) : "1"));
  }
  const std::string refusal = algorithm.refuse(params);
  if (!refusal.empty()) {
    throw UsageError(std::string(name_of(algorithm.op)) + " by " + std::string(algorithm.name) +
                     ": " + refusal);
  }
  Builder builder(contract_of(algorithm, params), keep);
  algorithm.generate(params, builder);
  return builder.finish(std::string(algorithm.name));
}

}  // namespace sinew::sched
