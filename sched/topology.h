// Topology: the machine a schedule is timed on: ranks, the links between them, what several links
// share, and what a reduction costs.
//
// Never does: discover (tools and comm do), time (simulate.h).
// Threads: plain values.
//
// Text form, written by hand or printed; `parse_topology(print(t)) == t`. One statement a line, '#'
// begins a comment, later lines win:
//
//   topology two-hosts                            # a name
//   ranks 8
//   ports 1                                       # messages a rank sends and receives at a time
//   reduce 0.1ns/B                                # reducing, per byte; `copy` for local copies
//   link * <-> * latency 2us bandwidth 12GB/s     # or `cost 0.08ns/B` instead of a bandwidth
//   link 0-3 <-> 0-3 latency 300ns cost 0.05ns/B
//   link 4-7 <-> 4-7 latency 300ns cost 0.05ns/B
//   share wire 0-3 -> 4-7                         # these messages pass one at a time
//   share wire-back 4-7 -> 0-3
//   work 0-3 <-> 4-7 message 2us cost 0.12ns/B    # processor time at either end of a message;
//                                                 # `reduce 0.1ns/B` after it: see WorkRule
//   cores both-hosts * 2                          # these ranks have two processors between them
//
// Ranks are '*', or numbers and ranges joined by commas. A -> B is from A to B, A <-> B both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sinew::sched {

// Ranges [first, last] of ranks, in rising order and apart.
struct RankSet {
  std::vector<std::pair<int, int>> ranges;
  [[nodiscard]] bool contains(int rank) const;
  friend bool operator==(const RankSet&, const RankSet&) = default;
};

struct Link {
  double latency_s = 0;
  double cost_s_per_byte = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

struct LinkRule {
  RankSet from;
  RankSet to;
  bool both_ways = false;
  Link link;
  friend bool operator==(const LinkRule&, const LinkRule&) = default;
};

// Messages from a rank of `from` to one of `to` pass one at a time.
struct ShareRule {
  std::string name;
  RankSet from;
  RankSet to;
  friend bool operator==(const ShareRule&, const ShareRule&) = default;
};

// Each end of a message from a rank of `from` to one of `to` keeps a processor of its rank busy for
// latency_s + bytes * cost_s_per_byte, beside what the link takes. Reducing what such a message
// brought takes reduce_s_per_byte beyond Topology's: what comes through mapped memory is reduced
// where it would be copied, what comes over a network is copied in any case.
struct WorkRule {
  RankSet from;
  RankSet to;
  bool both_ways = false;
  Link each_end;
  double reduce_s_per_byte = 0;
  friend bool operator==(const WorkRule&, const WorkRule&) = default;
};

// Ranks that have `count` processors between them, for work, reductions and copies. A rank is one
// thread, so it never uses more than one; one that no rule names has a processor of its own.
struct CoresRule {
  std::string name;
  RankSet ranks;
  int count = 1;
  friend bool operator==(const CoresRule&, const CoresRule&) = default;
};

struct Topology {
  std::string name = "homogeneous";
  int world = 1;
  int ports = 1;  // 0: as many as there are messages
  double reduce_s_per_byte = 0;
  double copy_s_per_byte = 0;
  std::vector<LinkRule> links;
  std::vector<ShareRule> shares;
  std::vector<WorkRule> works;
  std::vector<CoresRule> cores;

  // The last rule that names the pair; a link of no cost when none does. O(rules).
  [[nodiscard]] Link link(int from, int to) const;
  // At each end of a message; the last rule that names the pair, nothing when none does. O(rules).
  [[nodiscard]] Link work(int from, int to) const;
  // The first pair of ranks that no rule links; link() would let its messages take no time.
  [[nodiscard]] std::optional<std::pair<int, int>> unlinked() const;
  // Of a byte that came in such a message: reduce_s_per_byte and that of the rule. O(rules).
  [[nodiscard]] double reduction(int from, int to) const;
  // The last rule that names the rank, as an index into `cores`; -1: none does.
  [[nodiscard]] int cores_of(int rank) const;
  // The shares that the pair holds, as indices into `shares`; rules of one name are one share.
  [[nodiscard]] std::vector<int> shares_of(int from, int to) const;
  friend bool operator==(const Topology&, const Topology&) = default;
};

// All pairs alike.
[[nodiscard]] Topology homogeneous(int world, Link link, double reduce_s_per_byte);

// Hosts of `ranks_per_host` ranks, the last one perhaps smaller; the ranks of a host share one way
// out and one way in.
struct TwoLevel {
  int world = 1;
  int ranks_per_host = 1;
  Link inside;
  Link between;
  double reduce_s_per_byte = 0;
};
[[nodiscard]] Topology two_level(const TwoLevel& shape);

[[nodiscard]] std::string print(const Topology& topology);
// Throws UsageError with the line number, what was found and what is legal; any text is safe.
[[nodiscard]] Topology parse_topology(std::string_view text);

}  // namespace sinew::sched
