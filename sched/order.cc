#include "sched/order.h"

#include <algorithm>
#include <utility>

namespace sinew::sched {

namespace {

class Graph {
 public:
  Graph(const Schedule& schedule, const Matching& matching, const Buffering& buffering)
      : matching_(matching),
        first_(first_numbers(schedule)),
        nodes_(buffering.window == kUnlimited ? steps() : 2 * steps()) {
    std::size_t dependences = 0;
    for (const Program& program : schedule.programs) dependences += program.dependences.size();
    // A step has its dependences, at most its message, its turn and its credit, and three of
    // windows.
    const std::size_t each = buffering.window == kUnlimited ? 2 : 5;
    edges_.reserve((dependences + each * steps()) * (buffering.credits == 0 ? 2 : 1));
    for (std::size_t rank = 0; rank < schedule.programs.size(); ++rank) {
      add_program(schedule.programs[rank], first_[rank], buffering.window);
    }
    for (const Lane& lane : matching.lanes) add_lane(lane, buffering.credits);
    if (buffering.credits == 0) add_rendezvous();
    index();
  }

  [[nodiscard]] OrderResult sort() const {
    std::vector<std::uint32_t> left(nodes_, 0);
    for (const Edge& edge : edges_) ++left[edge.after];
    std::vector<std::uint32_t> order;
    order.reserve(nodes_);
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      if (left[node] == 0) order.push_back(node);
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
      const std::uint32_t node = order[next];
      for (std::uint32_t i = out_begin_[node]; i < out_begin_[node + 1]; ++i) {
        if (--left[out_[i]] == 0) order.push_back(out_[i]);
      }
    }
    OrderResult result;
    if (order.size() < nodes_) result.cycle = steps_of(find_cycle(left));
    result.order = steps_of(std::move(order));
    return result;
  }

 private:
  struct Edge {
    std::uint32_t before;
    std::uint32_t after;
  };

  [[nodiscard]] std::uint32_t steps() const { return first_.back(); }

  // Nodes 0 .. steps-1 are the steps. With a window, node steps + i stands for "step i and all
  // before it in its program are done".
  void add_program(const Program& program, std::uint32_t first, int window) {
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
      for (int d = 0; d < program.steps[i].dependences; ++d) {
        edges_.push_back({first + program.dependences[next++], first + i});
      }
      if (window == kUnlimited) continue;
      const std::uint32_t prefix = steps() + first + i;
      edges_.push_back({first + i, prefix});
      if (i > 0) edges_.push_back({prefix - 1, prefix});
      const auto reach = static_cast<std::uint32_t>(window);
      if (i >= reach) edges_.push_back({prefix - reach, first + i});
    }
  }

  void add_lane(const Lane& lane, int credits) {
    const std::uint32_t source = first_[static_cast<std::size_t>(lane.source)];
    const std::uint32_t target = first_[static_cast<std::size_t>(lane.target)];
    for (std::size_t i = 0; i < lane.sends.size(); ++i) {
      const std::uint32_t send = source + lane.sends[i];
      const std::uint32_t receive = target + lane.receives[i];
      edges_.push_back({send, receive});
      if (i > 0) {
        edges_.push_back({source + lane.sends[i - 1], send});
        edges_.push_back({target + lane.receives[i - 1], receive});
      }
      const auto held = static_cast<std::size_t>(credits);
      if (held > 0 && i >= held) edges_.push_back({target + lane.receives[i - held], send});
    }
  }

  // Without credits a send happens together with its receive: it inherits what that one waits for.
  void add_rendezvous() {
    constexpr std::uint32_t kNone = ~0U;
    std::vector<std::uint32_t> send_of(nodes_, kNone);
    for (const Lane& lane : matching_.lanes) {
      for (std::size_t i = 0; i < lane.sends.size(); ++i) {
        send_of[first_[static_cast<std::size_t>(lane.target)] + lane.receives[i]] =
            first_[static_cast<std::size_t>(lane.source)] + lane.sends[i];
      }
    }
    const std::size_t count = edges_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const Edge edge = edges_[i];
      const std::uint32_t send = send_of[edge.after];
      if (send != kNone && send != edge.before) edges_.push_back({edge.before, send});
    }
  }

  void index() {
    out_begin_.assign(nodes_ + std::size_t{1}, 0);
    for (const Edge& edge : edges_) ++out_begin_[edge.before + 1];
    for (std::size_t i = 1; i < out_begin_.size(); ++i) out_begin_[i] += out_begin_[i - 1];
    out_.resize(edges_.size());
    std::vector<std::uint32_t> next(out_begin_.begin(), out_begin_.end() - 1);
    for (const Edge& edge : edges_) out_[next[edge.before]++] = edge.after;
  }

  // What never happens waits for something that never happens: following one such wait each, a node
  // comes twice. Returned from the last waiter on.
  [[nodiscard]] std::vector<std::uint32_t> find_cycle(
      const std::vector<std::uint32_t>& left) const {
    std::vector<std::uint32_t> waits_for(nodes_, 0);
    for (const Edge& edge : edges_) {
      if (left[edge.before] != 0 && left[edge.after] != 0) waits_for[edge.after] = edge.before;
    }
    std::vector<bool> seen(nodes_, false);
    std::uint32_t node = 0;
    while (left[node] == 0) ++node;
    for (; !seen[node]; node = waits_for[node]) seen[node] = true;
    std::vector<std::uint32_t> cycle = {node};
    for (std::uint32_t at = waits_for[node]; at != node; at = waits_for[at]) cycle.push_back(at);
    return cycle;
  }

  [[nodiscard]] std::vector<std::uint32_t> steps_of(std::vector<std::uint32_t> nodes) const {
    std::erase_if(nodes, [&](std::uint32_t node) { return node >= steps(); });
    return nodes;
  }

  const Matching& matching_;
  std::vector<std::uint32_t> first_;
  std::uint32_t nodes_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> out_begin_;
  std::vector<std::uint32_t> out_;
};

// The least value in [low, high] for which `works` holds; works is monotone and holds at high.
template <typename Works>
int least(int low, int high, Works works) {
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (works(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

OrderResult order_steps(const Schedule& schedule, const Matching& matching,
                        const Buffering& buffering) {
  return Graph(schedule, matching, buffering).sort();
}

int least_credits(const Schedule& schedule, const Matching& matching, int window) {
  std::size_t longest = 0;
  for (const Lane& lane : matching.lanes) longest = std::max(longest, lane.sends.size());
  const auto works = [&](int credits) {
    return order_steps(schedule, matching, {credits, window}).completes();
  };
  const int most = static_cast<int>(longest);
  if (works(0)) return 0;
  if (works(1)) return 1;  // the common answers first
  return works(most) ? least(2, most, works) : kUnlimited;
}

int least_window(const Schedule& schedule, const Matching& matching) {
  std::size_t longest = 1;
  for (const Program& program : schedule.programs) {
    longest = std::max(longest, program.steps.size());
  }
  const auto works = [&](int window) {
    return order_steps(schedule, matching, {0, window}).completes();
  };
  const int most = static_cast<int>(longest);
  return works(most) ? least(1, most, works) : kUnlimited;
}

}  // namespace sinew::sched
