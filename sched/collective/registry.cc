#include "sched/collective/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

std::span<const Algorithm> algorithms() {
  static const std::array kTable = {
      kRingAllReduce,
      kBinomialAllReduce,
      kRecursiveDoublingAllReduce,
      kHalvingDoublingAllReduce,
      kOneShotAllReduce,
      kTwoShotAllReduce,
      kCirculantAllReduce,
      kDoubleTreeAllReduce,
      kBidirectionalRingAllReduce,
      kRecursiveMultiplyingAllReduce,
      kSwingAllReduce,
      kPatAllReduce,
      kHierarchicalAllReduce,

      kRingReduceScatter,
      kHalvingReduceScatter,
      kDirectReduceScatter,
      kCirculantReduceScatter,
      kBidirectionalRingReduceScatter,
      kSwingReduceScatter,
      kPatReduceScatter,

      kRingAllGather,
      kRecursiveDoublingAllGather,
      kDirectAllGather,
      kCirculantAllGather,
      kBruckAllGather,
      kBruck4AllGather,
      kBidirectionalRingAllGather,
      kNeighbourExchangeAllGather,
      kRecursiveMultiplyingAllGather,
      kSwingAllGather,
      kSparbitAllGather,
      kPatAllGather,

      kBinomialBroadcast,
      kDirectBroadcast,
      kDoubleTreeBroadcast,
      kChainBroadcast,
      kKnomial4Broadcast,

      kBinomialReduce,
      kDirectReduce,
      kDoubleTreeReduce,
      kChainReduce,
      kKnomial4Reduce,

      kBinomialGather,
      kDirectGather,

      kBinomialScatter,
      kDirectScatter,

      kPairwiseAllToAll,
      kDirectAllToAll,
      kBruckAllToAll,
      kBruck4AllToAll,

      kBinomialBarrier,
      kRecursiveDoublingBarrier,
      kDirectBarrier,
      kDisseminationBarrier,
  };
  return kTable;
}

const Algorithm& find_algorithm(Collective op, std::string_view name) {
  std::string legal;
  for (const Algorithm& row : algorithms()) {
    if (row.op != op) continue;
    if (row.name == name) return row;
    legal += legal.empty() ? "" : ", ";
    legal += row.name;
  }
  throw UsageError("algorithm '" + std::string(name) + "' is unknown for " +
                   std::string(name_of(op)) +
                   "; legal values: " + (legal.empty() ? "none" : legal));
}

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
