// The rows of the table of collective algorithms, each defined in the file of its algorithm, and
// what those files share. registry.cc lists the rows.
//
// Never does: select.
// Threads: constants and pure functions.
#pragma once

#include <string>

#include "sched/collective/registry.h"

namespace sinew::sched {

// In formulas: a, b, g are the model's alpha, beta and gamma, m the bytes of the full vector, P the
// world, L = ceil(log2 P), Q the largest power of two that is at most P, and r the radix.

// ring.cc
extern const Algorithm kRingAllReduce;
extern const Algorithm kRingReduceScatter;
extern const Algorithm kRingAllGather;

// binomial.cc
extern const Algorithm kBinomialAllReduce;
extern const Algorithm kBinomialBroadcast;
extern const Algorithm kBinomialReduce;
extern const Algorithm kBinomialGather;
extern const Algorithm kBinomialScatter;
extern const Algorithm kBinomialBarrier;

// recursive_doubling.cc
extern const Algorithm kRecursiveDoublingAllReduce;
extern const Algorithm kRecursiveDoublingAllGather;
extern const Algorithm kRecursiveDoublingBarrier;

// halving_doubling.cc
extern const Algorithm kHalvingDoublingAllReduce;
extern const Algorithm kHalvingReduceScatter;

// double_tree.cc
extern const Algorithm kDoubleTreeAllReduce;
extern const Algorithm kDoubleTreeBroadcast;
extern const Algorithm kDoubleTreeReduce;

// direct.cc
extern const Algorithm kOneShotAllReduce;
extern const Algorithm kTwoShotAllReduce;
extern const Algorithm kDirectReduceScatter;
extern const Algorithm kDirectAllGather;
extern const Algorithm kDirectBroadcast;
extern const Algorithm kDirectReduce;
extern const Algorithm kDirectGather;
extern const Algorithm kDirectScatter;
extern const Algorithm kDirectAllToAll;
extern const Algorithm kDirectBarrier;

// pairwise.cc
extern const Algorithm kPairwiseAllToAll;

// bruck.cc
extern const Algorithm kBruckAllGather;
extern const Algorithm kBruckAllToAll;

// dissemination.cc
extern const Algorithm kDisseminationBarrier;

// circulant.cc
extern const Algorithm kCirculantAllReduce;
extern const Algorithm kCirculantReduceScatter;
extern const Algorithm kCirculantAllGather;

// bidirectional_ring.cc
extern const Algorithm kBidirectionalRingAllReduce;
extern const Algorithm kBidirectionalRingReduceScatter;
extern const Algorithm kBidirectionalRingAllGather;

// neighbour_exchange.cc
extern const Algorithm kNeighbourExchangeAllGather;

// recursive_multiplying.cc
extern const Algorithm kRecursiveMultiplyingAllReduce;
extern const Algorithm kRecursiveMultiplyingAllGather;

// knomial.cc
extern const Algorithm kKnomialBroadcast;
extern const Algorithm kKnomialReduce;

// chain.cc
extern const Algorithm kChainBroadcast;
extern const Algorithm kChainReduce;

// swing.cc
extern const Algorithm kSwingAllReduce;
extern const Algorithm kSwingReduceScatter;
extern const Algorithm kSwingAllGather;

// parallel_trees.cc
extern const Algorithm kSparbitAllGather;
extern const Algorithm kPatAllReduce;
extern const Algorithm kPatReduceScatter;
extern const Algorithm kPatAllGather;

// hierarchical.cc
extern const Algorithm kHierarchicalAllReduce;

// For Algorithm::refuse.
[[nodiscard]] std::string any_world(const Params& params);
[[nodiscard]] std::string power_of_two(const Params& params);
[[nodiscard]] std::string even_world(const Params& params);
// For Algorithm::chunks_per_block.
[[nodiscard]] int one_chunk(const Params& params);
[[nodiscard]] int chunk_per_rank(const Params& params);

}  // namespace sinew::sched
