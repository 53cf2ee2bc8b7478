// Cores: what ranks that share processors do on them, one thing after the other. Part of the
// simulator.
//
// Never does: know schedules; what is done is a number to it.
// Threads: pure. Invariants: a rank does one thing at a time, in the order of its adds; of the
// ranks that could begin, the one goes first whose next thing has waited longest; no processor is
// idle while a rank of its group could use it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sched/topology.h"

namespace sinew::sched {

class Cores {
 public:
  explicit Cores(const Topology& topology);

  struct Item {
    std::uint32_t rank = 0;
    std::uint64_t what = 0;
    double seconds = 0;
  };
  void add(const Item& item);
  // What begins now, of all that was added; each must be told to done() when its time is over.
  [[nodiscard]] std::vector<Item> begin();
  void done(std::uint32_t rank);

 private:
  struct Waiting {
    Item item;
    std::uint64_t number;
  };
  struct Group {
    std::vector<std::uint32_t> ranks;
    int idle = 1;
    bool touched = false;
  };
  void touch(std::uint32_t rank);
  // The rank of the group that begins next; none: -1.
  [[nodiscard]] std::int64_t next(const Group& group) const;

  std::vector<Group> groups_;
  std::vector<std::uint32_t> group_of_;      // [rank]
  std::vector<std::deque<Waiting>> queues_;  // [rank]
  std::vector<bool> busy_;                   // [rank]
  std::vector<std::uint32_t> touched_;       // groups in which something may begin
  std::uint64_t added_ = 0;
};

}  // namespace sinew::sched
