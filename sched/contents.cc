#include "sched/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace sinew::sched {

namespace {

std::uint64_t key_of(std::uint32_t high, std::uint32_t low) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

}  // namespace

Expression Contents::input(int rank, int chunk) {
  const auto [at, fresh] = inputs_.try_emplace(
      key_of(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(chunk)), kEmpty);
  if (fresh) {
    at->second = add({chunk, rank, kEmpty, kEmpty, false});
    set_of(at->second)[rank / 64] |= std::uint64_t{1} << (rank % 64);
  }
  return at->second;
}

Expression Contents::combine(Expression left, Expression right) {
  if (nodes_[left].chunk != nodes_[right].chunk) return kEmpty;
  const auto [at, fresh] =
      combinations_.try_emplace(key_of(std::min(left, right), std::max(left, right)), kEmpty);
  if (!fresh) return at->second;
  bool repeats = nodes_[left].repeats || nodes_[right].repeats;
  for (std::size_t word = 0; word < words_; ++word) {
    repeats = repeats || (set_of(left)[word] & set_of(right)[word]) != 0;
  }
  const Expression sum = add({nodes_[left].chunk, -1, left, right, repeats});
  for (std::size_t word = 0; word < words_; ++word) {
    set_of(sum)[word] = set_of(left)[word] | set_of(right)[word];
  }
  at->second = sum;
  return sum;
}

Expression Contents::add(const Node& node) {
  nodes_.push_back(node);
  sets_.resize(sets_.size() + words_, 0);
  return static_cast<Expression>(nodes_.size() - 1);
}

int Contents::contributors(Expression expression) const {
  int count = 0;
  for (std::size_t word = 0; word < words_; ++word)
    count += std::popcount(set_of(expression)[word]);
  return count;
}

bool Contents::contributes(Expression expression, int rank) const {
  return (set_of(expression)[rank / 64] >> (rank % 64) & 1) != 0;
}

std::string Contents::describe(Expression expression) const {
  if (expression == kEmpty) return "nothing";
  std::string ranks;
  const int world = static_cast<int>(words_ * 64);
  for (int rank = 0; rank < world; ++rank) {
    if (!contributes(expression, rank)) continue;
    int last = rank;
    while (last + 1 < world && contributes(expression, last + 1)) ++last;
    ranks += ranks.empty() ? "" : ",";
    ranks += last == rank ? fmt::format("{}", rank) : fmt::format("{}-{}", rank, last);
    rank = last;
  }
  return fmt::format("chunk {} of rank{} {}{}", chunk(expression),
                     contributors(expression) == 1 ? "" : "s", ranks,
                     repeats(expression) ? " (some twice)" : "");
}

std::string Contents::formula(Expression expression, std::size_t limit) const {
  std::string text;
  append_formula(expression, limit, text);
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

// Depth is bounded by the limit: every level writes a bracket first.
void Contents::append_formula(Expression expression, std::size_t limit, std::string& text) const {
  if (text.size() > limit) return;
  const Node& node = nodes_[expression];
  if (node.rank >= 0) {
    text += fmt::format("x{}", node.rank);
    return;
  }
  text += '(';
  append_formula(node.left, limit, text);
  text += " + ";
  append_formula(node.right, limit, text);
  text += ')';
}

}  // namespace sinew::sched
