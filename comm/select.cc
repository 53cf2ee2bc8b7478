#include "comm/select.h"

#include <array>

#include "comm/call.h"
#include "comm/selection_file.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/collective/registry.h"

namespace sinew::comm {

namespace {

using sched::Collective;

constexpr std::int64_t kAnyBytes = std::int64_t{1} << 62;
constexpr int kAnyWorld = 1 << 20;

// The first row that fits is taken; every operation ends with a row that fits all.
// Borders as measured on 2 shared cores of an EPYC of the Zen 4 kind, f32 sum, medians. All-reduce
// of 2 KiB, the most a small call holds: 4 ranks 9.4 us by one_shot, 15 by two_shot and by the
// others; of 8 KiB 21 us by either. Of 2 MiB: 2 ranks 0.71 ms by two_shot, 1.07 by one_shot, 1.10
// by ring, 1.08 by circulant. Reduce on 2 ranks of 256 KiB, 1 MiB, 4 MiB: 27, 90, 425 us by direct,
// 17, 46, 362 by double_tree. Many ranks: by the cost model, since there is no machine to measure
// them on.
struct Row {
  Collective op;
  std::int64_t most_bytes;
  int most_world;
  std::string_view algorithm;
  std::string_view reason;
};

constexpr std::array kRows = {
    Row{Collective::kAllReduce, 2 << 10, 64, "one_shot",
        "small: one phase, every rank reduces all vectors"},
    Row{Collective::kAllReduce, kAnyBytes, 64, "two_shot",
        "two phases on shared memory, each byte moved once per phase"},
    Row{Collective::kAllReduce, 64 << 10, kAnyWorld, "recursive_doubling",
        "many ranks, small: fewest rounds"},
    Row{Collective::kAllReduce, kAnyBytes, kAnyWorld, "circulant",
        "many ranks: fewest rounds at the bandwidth bound"},
    Row{Collective::kReduceScatter, kAnyBytes, 64, "direct", "one phase on shared memory"},
    Row{Collective::kReduceScatter, kAnyBytes, kAnyWorld, "circulant",
        "many ranks: fewest rounds at the bandwidth bound"},
    Row{Collective::kAllGather, kAnyBytes, 64, "direct", "one phase on shared memory"},
    Row{Collective::kAllGather, kAnyBytes, kAnyWorld, "circulant",
        "many ranks: fewest rounds at the bandwidth bound"},
    Row{Collective::kBroadcast, kAnyBytes, 16, "direct", "few ranks: one phase on shared memory"},
    Row{Collective::kBroadcast, kAnyBytes, kAnyWorld, "binomial", "many ranks: fewest rounds"},
    Row{Collective::kReduce, 64 << 10, 2, "direct", "few ranks: one phase on shared memory"},
    Row{Collective::kReduce, kAnyBytes, 2, "double_tree", "two ranks, large: each reduces half"},
    Row{Collective::kReduce, kAnyBytes, 16, "direct", "few ranks: one phase on shared memory"},
    Row{Collective::kReduce, kAnyBytes, kAnyWorld, "binomial", "many ranks: fewest rounds"},
    Row{Collective::kGather, kAnyBytes, 64, "direct", "one phase on shared memory"},
    Row{Collective::kGather, kAnyBytes, kAnyWorld, "binomial", "many ranks: fewest rounds"},
    Row{Collective::kScatter, kAnyBytes, 64, "direct", "one phase on shared memory"},
    Row{Collective::kScatter, kAnyBytes, kAnyWorld, "binomial", "many ranks: fewest rounds"},
    Row{Collective::kAllToAll, kAnyBytes, 64, "direct",
        "one phase on shared memory, nothing is forwarded"},
    Row{Collective::kAllToAll, 64 << 10, kAnyWorld, "bruck", "many ranks, small: fewest rounds"},
    Row{Collective::kAllToAll, kAnyBytes, kAnyWorld, "direct",
        "many ranks: nothing is forwarded, each byte moved once"},
    Row{Collective::kBarrier, kAnyBytes, 64, "direct", "one phase: every rank signals all"},
    Row{Collective::kBarrier, kAnyBytes, kAnyWorld, "recursive_doubling",
        "many ranks: fewest rounds"},
};

// Between hosts bytes and messages cost more than anything inside one, so these come first there.
// Borders as measured over TCP between two namespaces on 2 cores: all-reduce of 64 KiB on 2 ranks
// 52 us by recursive_doubling, 75 us in two phases; of 512 KiB 422 and 455 us, of 1 MiB 849 and 792
// us (medians of two launches). Of the algorithms in two phases ring takes a hundredth less than
// circulant on two ranks at 1 and 2 MiB.
enum class Hosts : std::uint8_t { kAnyRanks, kTwoRanks, kLevels };
struct NetworkRow {
  Collective op;
  std::int64_t most_bytes;
  Hosts hosts;
  std::string_view algorithm;
  std::string_view reason;
};

constexpr std::array kNetworkRows = {
    NetworkRow{Collective::kAllReduce, 512 << 10, Hosts::kTwoRanks, "recursive_doubling",
               "two ranks over a network: one exchange of the whole vector"},
    NetworkRow{Collective::kAllReduce, kAnyBytes, Hosts::kTwoRanks, "ring",
               "two ranks over a network, large: each reduces half"},
    NetworkRow{Collective::kAllReduce, 16 << 10, Hosts::kLevels, "recursive_doubling",
               "hosts, small: one message of a rank crosses the network"},
    NetworkRow{Collective::kAllReduce, kAnyBytes, Hosts::kLevels, "hierarchical",
               "hosts: each rank takes its part of the vector over the network"},
    NetworkRow{Collective::kAllReduce, 128 << 10, Hosts::kAnyRanks, "recursive_doubling",
               "over a network, small: fewest rounds"},
    NetworkRow{Collective::kAllReduce, kAnyBytes, Hosts::kAnyRanks, "circulant",
               "over a network: fewest rounds at the bandwidth bound"},
    NetworkRow{Collective::kReduceScatter, kAnyBytes, Hosts::kLevels, "ring",
               "hosts: only neighbours in the ring cross the network"},
    NetworkRow{Collective::kAllGather, kAnyBytes, Hosts::kLevels, "ring",
               "hosts: only neighbours in the ring cross the network"},
    NetworkRow{Collective::kBroadcast, kAnyBytes, Hosts::kLevels, "binomial",
               "hosts: few edges of the tree cross the network"},
    NetworkRow{Collective::kReduce, kAnyBytes, Hosts::kLevels, "binomial",
               "hosts: few edges of the tree cross the network"},
};

bool fits(const NetworkRow& row, const Machine& machine) {
  if (machine.hosts <= 1) return false;
  switch (row.hosts) {
    case Hosts::kAnyRanks:
      return true;
    case Hosts::kTwoRanks:
      return machine.world == 2;
    case Hosts::kLevels:
      return machine.ranks_per_host > 0;
  }
  __builtin_unreachable();
}

}  // namespace

Selection select(Collective op, std::int64_t bytes, const Machine& machine) {
  if (machine.measured != nullptr) {
    const SelectionFile::Row* row =
        machine.measured->find(op, bytes, machine.world, machine.transport);
    if (row != nullptr) return {row->algorithm, row->reason};
  }
  for (const NetworkRow& row : kNetworkRows) {
    if (row.op == op && bytes <= row.most_bytes && fits(row, machine))
      return {row.algorithm, row.reason};
  }
  for (const Row& row : kRows) {
    if (row.op == op && bytes <= row.most_bytes && machine.world <= row.most_world)
      return {row.algorithm, row.reason};
  }
  throw UsageError("operation '" + std::string(sched::name_of(op)) + "' has no algorithm here");
}

Selector::Selector(const Machine& machine) {
  if (machine.measured != nullptr) {
    for (const SelectionFile::Row* row :
         machine.measured->rows_for(machine.world, machine.transport)) {
      entries_[static_cast<std::size_t>(row->op)].push_back(
          {row->most_bytes, algorithm_index(row->op, row->algorithm, machine.world, 0)});
    }
  }
  for (const NetworkRow& row : kNetworkRows) {
    if (!fits(row, machine)) continue;
    entries_[static_cast<std::size_t>(row.op)].push_back(
        {row.most_bytes, algorithm_index(row.op, row.algorithm, machine.world, 0)});
  }
  // These follow the measured ones, whose last row fits all.
  for (const Row& row : kRows) {
    if (machine.world > row.most_world) continue;
    entries_[static_cast<std::size_t>(row.op)].push_back(
        {row.most_bytes, algorithm_index(row.op, row.algorithm, machine.world, 0)});
  }
}

std::uint16_t Selector::none(Collective op) {
  throw UsageError("operation '" + std::string(sched::name_of(op)) + "' has no algorithm here");
}

std::int64_t full_bytes(Collective op, std::int64_t count, DType dtype, int world) {
  const sched::Contract contract{.op = op, .world = world};
  return count * contract.blocks() * static_cast<std::int64_t>(size_of(dtype));
}

std::uint16_t algorithm_index(Collective op, std::string_view name, int world, int root) {
  const sched::Algorithm& row = sched::find_algorithm(op, name);
  const std::string refusal = row.refuse({.world = world, .root = root});
  if (!refusal.empty()) {
    throw UsageError(std::string(sched::name_of(op)) + " by " + std::string(name) + ": " + refusal);
  }
  const std::size_t index = sched::index_of(row);
  CHECK_LT(index, kNoAlgorithm);
  return static_cast<std::uint16_t>(index);
}

}  // namespace sinew::comm
