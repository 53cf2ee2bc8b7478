// Contents: what a slot holds, as expressions over the ranks' inputs. Equal expressions have equal
// numbers, where a (+) b and b (+) a count as equal: a reduction of two numbers gives the same bits
// either way, but not of three in another grouping.
//
// Never does: know steps or slots (verify.h executes them).
// Threads: one table, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace sinew::sched {

using Expression = std::uint32_t;
inline constexpr Expression kEmpty = ~0U;  // nothing was written yet

class Contents {
 public:
  explicit Contents(int world) : words_((static_cast<std::size_t>(world) + 63) / 64) {}

  // The input of `rank` for `chunk`.
  [[nodiscard]] Expression input(int rank, int chunk);
  // left (+) right; both of one chunk, else kEmpty.
  [[nodiscard]] Expression combine(Expression left, Expression right);

  [[nodiscard]] int chunk(Expression expression) const { return nodes_[expression].chunk; }
  // Whether some rank's input is in it twice.
  [[nodiscard]] bool repeats(Expression expression) const { return nodes_[expression].repeats; }
  [[nodiscard]] int contributors(Expression expression) const;
  [[nodiscard]] bool contributes(Expression expression, int rank) const;
  // Bytes this table holds, for callers that set a limit.
  [[nodiscard]] std::size_t memory_bytes() const { return sets_.size() * sizeof(std::uint64_t); }
  // "chunk 3 of ranks 0-2, 5", "nothing".
  [[nodiscard]] std::string describe(Expression expression) const;
  // "((x0 + x1) + x2)", cut at `limit` characters.
  [[nodiscard]] std::string formula(Expression expression, std::size_t limit = 200) const;

 private:
  struct Node {
    int chunk;
    int rank;  // of an input; -1 for a combination
    Expression left;
    Expression right;
    bool repeats;
  };
  [[nodiscard]] std::uint64_t* set_of(Expression expression) {
    return sets_.data() + expression * words_;
  }
  [[nodiscard]] const std::uint64_t* set_of(Expression expression) const {
    return sets_.data() + expression * words_;
  }
  Expression add(const Node& node);
  void append_formula(Expression expression, std::size_t limit, std::string& text) const;

  std::size_t words_;
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> sets_;  // [nodes][words]: which ranks' inputs are in it
  std::unordered_map<std::uint64_t, Expression> inputs_;
  std::unordered_map<std::uint64_t, Expression> combinations_;
};

}  // namespace sinew::sched
