#include "tools/guidelines.h"

#include <fmt/format.h>

#include <iterator>

namespace sinew::tools {
namespace {

using sched::Collective;

struct Guideline {
  Collective op;
  std::vector<Collective> others;  // one after the other, on the same full vector
};

const std::vector<Guideline>& guidelines() {
  static const std::vector<Guideline> rows = {
      {Collective::kAllReduce, {Collective::kReduce, Collective::kBroadcast}},
      {Collective::kAllReduce, {Collective::kReduceScatter, Collective::kAllGather}},
      {Collective::kReduce, {Collective::kAllReduce}},
      {Collective::kReduceScatter, {Collective::kAllReduce}},
      {Collective::kAllGather, {Collective::kAllReduce}},
      {Collective::kBroadcast, {Collective::kAllReduce}},
      {Collective::kGather, {Collective::kAllGather}},
  };
  return rows;
}

std::string words_of(const Guideline& guideline) {
  std::string words = fmt::format("{} <=", sched::name_of(guideline.op));
  for (std::size_t i = 0; i < guideline.others.size(); ++i)
    words += fmt::format("{} {}", i == 0 ? "" : " +", sched::name_of(guideline.others[i]));
  return words;
}

class Search {
 public:
  Search(const TimesByOp& times, double tolerance) : times_(times), tolerance_(tolerance) {}

  std::vector<Violation> run() {
    for (const Guideline& guideline : guidelines()) compare(guideline);
    compare_barrier();
    for (const auto& [op, by_size] : times_) compare_sizes(op, by_size);
    return std::move(found_);
  }

 private:
  void check(const std::string& words, std::int64_t bytes, double taken_s, double allowed_s) {
    if (taken_s > tolerance_ * allowed_s) found_.push_back({words, bytes, taken_s, allowed_s});
  }

  void compare(const Guideline& guideline) {
    const auto mine = times_.find(guideline.op);
    if (mine == times_.end()) return;
    for (const auto& [bytes, taken_s] : mine->second) {
      double allowed_s = 0;
      bool known = true;
      for (const Collective other : guideline.others) {
        const auto by_size = times_.find(other);
        known = known && by_size != times_.end() && by_size->second.contains(bytes);
        if (known) allowed_s += by_size->second.at(bytes);
      }
      if (known) check(words_of(guideline), bytes, taken_s, allowed_s);
    }
  }

  void compare_barrier() {
    const auto barrier = times_.find(Collective::kBarrier);
    const auto reduce = times_.find(Collective::kAllReduce);
    if (barrier == times_.end() || reduce == times_.end()) return;
    if (barrier->second.empty() || reduce->second.empty()) return;
    check("barrier <= all_reduce", reduce->second.begin()->first, barrier->second.begin()->second,
          reduce->second.begin()->second);
  }

  void compare_sizes(Collective op, const TimesBySize& by_size) {
    for (auto large = by_size.begin(); large != by_size.end(); ++large) {
      if (large == by_size.begin()) continue;
      const auto small = std::prev(large);
      if (small->first == 0) continue;
      check(fmt::format("{} <= {} of more bytes", sched::name_of(op), sched::name_of(op)),
            small->first, small->second, large->second);
      const std::int64_t pieces = (large->first + small->first - 1) / small->first;
      check(fmt::format("{0} <= {1} x {0} of {2} bytes", sched::name_of(op), pieces, small->first),
            large->first, large->second, static_cast<double>(pieces) * small->second);
    }
  }

  const TimesByOp& times_;
  double tolerance_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<Violation> violations(const TimesByOp& times, double tolerance) {
  return Search(times, tolerance).run();
}

}  // namespace sinew::tools
