#include "sched/collective/registry.h"

#include <array>

#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/collective/algorithms.h"

namespace sinew::sched {

namespace {

std::string any_world(const Params&) { return {}; }

std::string power_of_two(const Params& params) {
  if (is_power_of_two(params.world)) return {};
  return "world " + std::to_string(params.world) +
         " is not a power of two; legal values: 1, 2, 4, 8, ...";
}

int one_chunk(const Params&) { return 1; }
int chunk_per_rank(const Params& params) { return params.world; }

constexpr std::string_view kRingSource = "Patarasuk and Yuan, JPDC 2009";
constexpr std::string_view kThakur = "Thakur, Rabenseifner, Gropp, IJHPCA 2005";
constexpr std::string_view kRabenseifner = "Rabenseifner, ICCS 2004";
constexpr std::string_view kTraeff = "Traeff 2024, arXiv 2410.14234";
constexpr std::string_view kFolklore = "folklore; Chan et al., CCPE 2007";

constexpr std::array kAlgorithms = {
    Algorithm{Collective::kAllReduce, "ring", "2(P-1)a + 2(P-1)/P m b + (P-1)/P m g", kRingSource,
              ring_all_reduce, chunk_per_rank, any_world, ring_all_reduce_cost},
    Algorithm{Collective::kAllReduce, "binomial", "2L(a + m b) + L m g", kFolklore,
              binomial_all_reduce, one_chunk, any_world, binomial_all_reduce_cost},
    Algorithm{Collective::kAllReduce, "recursive_doubling",
              "L(a + m b + m g), +2 rounds unless P = 2^i", kThakur, recursive_doubling_all_reduce,
              one_chunk, any_world, recursive_doubling_all_reduce_cost},
    Algorithm{Collective::kAllReduce, "halving_doubling",
              "2La + 2(P-1)/P m b + (P-1)/P m g, +2 rounds of m unless P = 2^i", kRabenseifner,
              halving_doubling_all_reduce, halving_doubling_chunks, any_world,
              halving_doubling_all_reduce_cost},
    Algorithm{Collective::kAllReduce, "one_shot", "(P-1)(a + m b + m g)", kFolklore,
              one_shot_all_reduce, one_chunk, any_world, one_shot_all_reduce_cost},
    Algorithm{Collective::kAllReduce, "two_shot", "2(P-1)a + 2(P-1)/P m b + (P-1)/P m g", kFolklore,
              two_shot_all_reduce, chunk_per_rank, any_world, two_shot_all_reduce_cost},
    Algorithm{Collective::kAllReduce, "circulant", "2La + 2(P-1)/P m b + (P-1)/P m g", kTraeff,
              circulant_all_reduce, chunk_per_rank, any_world, circulant_all_reduce_cost},

    Algorithm{Collective::kReduceScatter, "ring", "(P-1)a + (P-1)/P m (b + g)", kRingSource,
              ring_reduce_scatter, one_chunk, any_world, ring_reduce_scatter_cost},
    Algorithm{Collective::kReduceScatter, "halving", "La + (P-1)/P m (b + g)", kThakur,
              halving_reduce_scatter, one_chunk, power_of_two, halving_reduce_scatter_cost},
    Algorithm{Collective::kReduceScatter, "direct", "(P-1)a + (P-1)/P m (b + g)", kFolklore,
              direct_reduce_scatter, one_chunk, any_world, direct_reduce_scatter_cost},
    Algorithm{Collective::kReduceScatter, "circulant", "La + (P-1)/P m (b + g)", kTraeff,
              circulant_reduce_scatter, one_chunk, any_world, circulant_reduce_scatter_cost},

    Algorithm{Collective::kAllGather, "ring", "(P-1)a + (P-1)/P m b", kRingSource, ring_all_gather,
              one_chunk, any_world, ring_all_gather_cost},
    Algorithm{Collective::kAllGather, "recursive_doubling", "La + (P-1)/P m b", kThakur,
              recursive_doubling_all_gather, one_chunk, power_of_two,
              recursive_doubling_all_gather_cost},
    Algorithm{Collective::kAllGather, "direct", "(P-1)a + (P-1)/P m b", kFolklore,
              direct_all_gather, one_chunk, any_world, direct_all_gather_cost},
    Algorithm{Collective::kAllGather, "circulant", "La + (P-1)/P m b", kTraeff,
              circulant_all_gather, one_chunk, any_world, circulant_all_gather_cost},

    Algorithm{Collective::kBroadcast, "binomial", "L(a + m b)", kFolklore, binomial_broadcast,
              one_chunk, any_world, binomial_broadcast_cost},
    Algorithm{Collective::kBroadcast, "direct", "(P-1)(a + m b)", kFolklore, direct_broadcast,
              one_chunk, any_world, direct_broadcast_cost},

    Algorithm{Collective::kReduce, "binomial", "L(a + m b + m g)", kFolklore, binomial_reduce,
              one_chunk, any_world, binomial_reduce_cost},
    Algorithm{Collective::kReduce, "direct", "(P-1)(a + m b + m g)", kFolklore, direct_reduce,
              one_chunk, any_world, direct_reduce_cost},

    Algorithm{Collective::kBarrier, "binomial", "2La", kFolklore, binomial_all_reduce, one_chunk,
              any_world, binomial_all_reduce_cost},
    Algorithm{Collective::kBarrier, "recursive_doubling", "La, +2 rounds unless P = 2^i", kThakur,
              recursive_doubling_all_reduce, one_chunk, any_world,
              recursive_doubling_all_reduce_cost},
    Algorithm{Collective::kBarrier, "direct", "(P-1)a", kFolklore, one_shot_all_reduce, one_chunk,
              any_world, one_shot_all_reduce_cost},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm& find_algorithm(Collective op, std::string_view name) {
  std::string legal;
  for (const Algorithm& row : kAlgorithms) {
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
  algorithm.generate(params, builder);
  return builder.finish(std::string(algorithm.name));
}

}  // namespace sinew::sched
