// Selection: which algorithm `auto` takes, and why. Measured rows (selection_file.h) come first,
// then a small table by operation, size class and world, with the two facts about the machine that
// move the borders: ranks against cores.
//
// Never does: look at buffers, ranks or clocks: every rank must come to the same answer.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sched/base/dtype.h"
#include "sched/collective/contract.h"

namespace sinew::comm {

class SelectionFile;

struct Machine {
  int world = 1;
  int cores = 1;                            // usable by all ranks of this machine together
  int hosts = 1;                            // that a network joins
  int ranks_per_host = 0;                   // where they can be levels (transport/choice.h); else 0
  std::string_view transport = {};          // between the ranks
  const SelectionFile* measured = nullptr;  // rows that come first; outlives what it is given to
};

struct Selection {
  std::string_view algorithm;
  std::string_view reason;
};

// bytes: of the operation's full vector (m of the cost tables).
[[nodiscard]] Selection select(sched::Collective op, std::int64_t bytes, const Machine& machine);

// The same answers, looked up: for one machine, with the rows that do not fit it left out.
class Selector {
 public:
  explicit Selector(const Machine& machine);
  // Index into sched::every_algorithm(). Throws UsageError when the operation has no algorithm.
  [[nodiscard]] std::uint16_t index(sched::Collective op, std::int64_t bytes) const {
    for (const Entry& entry : entries_[static_cast<std::size_t>(op)]) {
      if (bytes <= entry.most_bytes) return entry.index;
    }
    return none(op);
  }

 private:
  struct Entry {
    std::int64_t most_bytes;
    std::uint16_t index;
  };
  [[noreturn]] static std::uint16_t none(sched::Collective op);
  std::vector<Entry> entries_[sched::kCollectiveCount];
};

// m: the bytes of the full vector for `count` as the communicator's calls take it.
[[nodiscard]] std::int64_t full_bytes(sched::Collective op, std::int64_t count, DType dtype,
                                      int world);

// Index into sched::every_algorithm() of the row. Throws UsageError naming the legal algorithms of
// this operation when there is none of that name, or its rule when it refuses this world and root.
[[nodiscard]] std::uint16_t algorithm_index(sched::Collective op, std::string_view name, int world,
                                            int root);

}  // namespace sinew::comm
