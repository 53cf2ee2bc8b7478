// Contract: what each rank holds before a collective and must hold after it, as contributions.
//
// A slot's content is a chunk number and a set of ranks: "the reduction of chunk c over these ranks' inputs".
// Moves without arithmetic have one contributor. The checker compares contents, never numbers.
//
// Shapes, with P = world, n = the caller's count of elements, C = chunks_per_block:
//   operation        blocks  Input of rank r          Output of rank r            chunk c of the logical vector
//   all_reduce       1       n elements, all chunks   n elements, all chunks      partition(n, C, c)
//   reduce           1       all chunks               root only: all chunks       partition(n, C, c)
//   broadcast        1       root only: all chunks    all chunks                  partition(n, C, c)
//   reduce_scatter   P       P*n, all chunks          n, the chunks of block r    block c/C, partition(n, C, c%C)
//   all_gather       P       n, the chunks of block r P*n, all chunks             block c/C, partition(n, C, c%C)
//   gather           P       n, the chunks of block r root only: P*n, all chunks  block c/C, partition(n, C, c%C)
//   scatter          P       root only: P*n           n, the chunks of block r    block c/C, partition(n, C, c%C)
//   all_to_all       P       P*n: block b goes to b   P*n: block b came from b    block c/C, partition(n, C, c%C)
//   barrier          1       nothing                  nothing; C = 1 token of zero bytes that must be reduced
//                                                     from and known to all, as in all_reduce
// Input and Output slots are always numbered by the chunk's global number, also where a rank owns one block.
#pragma once

#include <cstdint>
#include <string_view>

namespace sinew::sched {

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
};
inline constexpr int kCollectiveCount = 9;

struct Contract {
  Collective op = Collective::kAllReduce;
  int world = 1;
  int root = 0;              // meaningful for broadcast, reduce, gather, scatter
  int chunks_per_block = 1;  // C

  [[nodiscard]] int blocks() const;
  [[nodiscard]] int chunks() const { return blocks() * chunks_per_block; }
  // Whether rank has the slot Input[chunk] / Output[chunk] at all.
  [[nodiscard]] bool has_input(int rank, int chunk) const;
  [[nodiscard]] bool has_output(int rank, int chunk) const;
  [[nodiscard]] bool reduces() const;   // contributions of all ranks are combined
  [[nodiscard]] bool rooted() const;
  friend bool operator==(const Contract&, const Contract&) = default;
};

[[nodiscard]] std::string_view name_of(Collective op);  // "all_reduce", ...
// Throws UsageError naming the legal values.
[[nodiscard]] Collective parse_collective(std::string_view name);

}  // namespace sinew::sched
