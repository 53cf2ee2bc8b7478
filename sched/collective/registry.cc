#include "sched/collective/registry.h"

#include <array>

#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

std::string any_world(const Params&) { return {}; }

std::string power_of_two(const Params& params) {
  if (is_power_of_two(params.world)) return {};
  return "world " + std::to_string(params.world) +
         " is not a power of two; legal values: 1, 2, 4, 8, ...";
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

      kRingReduceScatter,
      kHalvingReduceScatter,
      kDirectReduceScatter,
      kCirculantReduceScatter,

      kRingAllGather,
      kRecursiveDoublingAllGather,
      kDirectAllGather,
      kCirculantAllGather,

      kBinomialBroadcast,
      kDirectBroadcast,

      kBinomialReduce,
      kDirectReduce,

      kBinomialBarrier,
      kRecursiveDoublingBarrier,
      kDirectBarrier,
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
  Contract contract;
  contract.op = algorithm.op;
  contract.world = params.world;
  contract.root = contract.rooted() ? params.root : 0;
  contract.chunks_per_block = algorithm.chunks_per_block(params);
  Builder builder(contract, keep);
  builder.set_segments(algorithm.segmented ? params.segments : 0);
  algorithm.generate(params, builder);
  return builder.finish(std::string(algorithm.name));
}

}  // namespace sinew::sched
