#include "sched/collective/contract.h"

#include <array>
#include <string>

#include "sched/base/error.h"

namespace sinew::sched {

namespace {
constexpr std::array<std::string_view, kCollectiveCount> kNames = {
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
    "gather",     "scatter",        "all_to_all", "barrier"};
}

int Contract::blocks() const {
  switch (op) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kBarrier:
      return 1;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return world;
  }
  return 1;
}

bool Contract::has_input(int rank, int chunk) const {
  switch (op) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kBarrier:
      return true;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return rank == root;
    case Collective::kAllGather:
    case Collective::kGather:
      return chunk / chunks_per_block == rank;
  }
  return false;
}

bool Contract::has_output(int rank, int chunk) const {
  switch (op) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kBarrier:
      return true;
    case Collective::kReduce:
    case Collective::kGather:
      return rank == root;
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return chunk / chunks_per_block == rank;
  }
  return false;
}

bool Contract::reduces() const {
  return op == Collective::kAllReduce || op == Collective::kReduce ||
         op == Collective::kReduceScatter || op == Collective::kBarrier;
}

bool Contract::rooted() const {
  return op == Collective::kBroadcast || op == Collective::kReduce || op == Collective::kGather ||
         op == Collective::kScatter;
}

std::string_view name_of(Collective op) { return kNames[static_cast<std::size_t>(op)]; }

Collective parse_collective(std::string_view name) {
  std::string legal;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Collective>(i);
    legal += legal.empty() ? "" : ", ";
    legal += kNames[i];
  }
  throw UsageError("operation '" + std::string(name) + "' is unknown; legal values: " + legal);
}

}  // namespace sinew::sched
