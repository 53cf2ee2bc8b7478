// Contract: what each rank holds before a collective and must hold after it, as contributions.
//
// A slot's content is a chunk number and a set of ranks: "the reduction of chunk c over these
// ranks' inputs". Moves without arithmetic have one contributor. The checker compares contents,
// never numbers.
//
// Shapes, with P = world, n = the caller's count of elements, C = chunks_per_block:
//
//   operation       blocks  Input of rank r        Output of rank r        chunk c of the vector
//   all_reduce      1       n, all chunks          n, all chunks           partition(n, C, c)
//   reduce          1       n, all chunks          root: n, all chunks     partition(n, C, c)
//   broadcast       1       root: n, all chunks    n, all chunks           partition(n, C, c)
//   reduce_scatter  P       P*n, all chunks        n, chunks of block r    block c/C,
//                                                                          partition(n, C, c%C)
//   all_gather      P       n, chunks of block r   P*n, all chunks         the same
//   gather          P       n, chunks of block r   root: P*n, all chunks   the same
//   scatter         P       root: P*n, all chunks  n, chunks of block r    the same
//   all_to_all      P       P*n: block b to b      P*n: block b from b     the same
//   barrier         1       nothing                nothing                 a token of no bytes
//
// A barrier's one token must be known to be sent by all, as in all_reduce, but may be counted
// twice. Input and Output slots are always numbered by the chunk's global number, also where a rank
// owns one block.
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
  [[nodiscard]] bool reduces() const;  // contributions of all ranks are combined
  [[nodiscard]] bool rooted() const;
  friend bool operator==(const Contract&, const Contract&) = default;
};

[[nodiscard]] std::string_view name_of(Collective op);  // "all_reduce", ...
// Throws UsageError naming the legal values.
[[nodiscard]] Collective parse_collective(std::string_view name);

}  // namespace sinew::sched
