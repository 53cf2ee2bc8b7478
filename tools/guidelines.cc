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
  [[nodiscard]] double seconds(const Term& term) const {
    return static_cast<double>(term.calls) * times_.at(term.op).at(term.bytes);
  }

  void check(const std::string& words, const Term& taken, const std::vector<Term>& allowed) {
    double allowed_s = 0;
    for (const Term& term : allowed) allowed_s += seconds(term);
    if (seconds(taken) > tolerance_ * allowed_s)
      found_.push_back({words, taken, allowed, seconds(taken), allowed_s});
  }

  void compare(const Guideline& guideline) {
    const auto mine = times_.find(guideline.op);
    if (mine == times_.end()) return;
    for (const auto& [bytes, taken_s] : mine->second) {
      std::vector<Term> allowed;
      for (const Collective other : guideline.others) {
        const auto by_size = times_.find(other);
        if (by_size != times_.end() && by_size->second.contains(bytes))
          allowed.push_back({other, bytes});
      }
      if (allowed.size() == guideline.others.size())
        check(words_of(guideline), {guideline.op, bytes}, allowed);
    }
  }

  void compare_barrier() {
    const auto barrier = times_.find(Collective::kBarrier);
    const auto reduce = times_.find(Collective::kAllReduce);
    if (barrier == times_.end() || reduce == times_.end()) return;
    if (barrier->second.empty() || reduce->second.empty()) return;
    check("barrier <= all_reduce", {Collective::kBarrier, barrier->second.begin()->first},
          {{Collective::kAllReduce, reduce->second.begin()->first}});
  }

  void compare_sizes(Collective op, const TimesBySize& by_size) {
    for (auto large = by_size.begin(); large != by_size.end(); ++large) {
      if (large == by_size.begin()) continue;
      const auto small = std::prev(large);
      if (small->first == 0) continue;
      check(fmt::format("{} <= {} of more bytes", sched::name_of(op), sched::name_of(op)),
            {op, small->first}, {{op, large->first}});
      const std::int64_t pieces = (large->first + small->first - 1) / small->first;
      check(fmt::format("{0} <= {1} x {0} of {2} bytes", sched::name_of(op), pieces, small->first),
            {op, large->first}, {{op, small->first, pieces}});
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
