// Ask: a collective call as data, and the one place that says which arguments an operation has. Of
// every form of a call, C++ or C, blocking or started, grouped or not, this is the same.
//
// Never does: check; the engine does, before anything is sent.
// Threads: plain values. What they point at is the caller's.
#pragma once

#include <cstdint>
#include <span>

#include "sched/base/dtype.h"
#include "sched/collective/contract.h"

namespace sinew::comm {

struct Ask {
  sched::Collective op = sched::Collective::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;
  // [parts] elements of each block instead of `count`, which then is their sum; null: all equal. Of
  // all_to_all: of the input's blocks, and those of the output.
  const std::int64_t* counts = nullptr;
  const std::int64_t* output_counts = nullptr;
  std::size_t parts = kNoParts;  // how many counts were given
  std::size_t output_parts = kNoParts;
  const void* factor = nullptr;  // one element, or null: what the input counts times in a sum

  static constexpr std::size_t kNoParts = ~std::size_t{0};
};

namespace ask {

using Counts = std::span<const std::int64_t>;

struct Buffers {
  const void* input;
  void* output;
};

[[nodiscard]] Ask all_reduce(Buffers buffers, std::int64_t count, DType dtype, ReduceOp op);
[[nodiscard]] Ask reduce_scatter(Buffers buffers, std::int64_t count, DType dtype, ReduceOp op);
[[nodiscard]] Ask all_gather(Buffers buffers, std::int64_t count, DType dtype);
[[nodiscard]] Ask broadcast(Buffers buffers, std::int64_t count, DType dtype, int root);
[[nodiscard]] Ask reduce(Buffers buffers, std::int64_t count, DType dtype, ReduceOp op, int root);
[[nodiscard]] Ask gather(Buffers buffers, std::int64_t count, DType dtype, int root);
[[nodiscard]] Ask scatter(Buffers buffers, std::int64_t count, DType dtype, int root);
[[nodiscard]] Ask all_to_all(Buffers buffers, std::int64_t count, DType dtype);

[[nodiscard]] Ask reduce_scatter_v(Buffers buffers, Counts counts, DType dtype, ReduceOp op);
[[nodiscard]] Ask all_gather_v(Buffers buffers, Counts counts, DType dtype);
[[nodiscard]] Ask gather_v(Buffers buffers, Counts counts, DType dtype, int root);
[[nodiscard]] Ask scatter_v(Buffers buffers, Counts counts, DType dtype, int root);
[[nodiscard]] Ask all_to_all_v(Buffers buffers, Counts input_counts, Counts output_counts,
                               DType dtype);

}  // namespace ask
}  // namespace sinew::comm
