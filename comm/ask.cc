#include "comm/ask.h"

namespace sinew::comm::ask {

namespace {

using sched::Collective;

Ask of(Collective op, Buffers buffers, std::int64_t count, DType dtype,
       ReduceOp reduce = ReduceOp::kSum, int root = 0) {
  return {.op = op,
          .input = buffers.input,
          .output = buffers.output,
          .count = count,
          .dtype = dtype,
          .reduce = reduce,
          .root = root};
}

Ask in_parts(Ask ask, Counts counts) {
  ask.counts = counts.data();
  ask.parts = counts.size();
  ask.count = 0;
  // Unsigned: nonsense is refused later and must not overflow here.
  for (const std::int64_t count : counts)
    ask.count = static_cast<std::int64_t>(static_cast<std::uint64_t>(ask.count) +
                                          static_cast<std::uint64_t>(count));
  return ask;
}

}  // namespace

Ask all_reduce(Buffers buffers, std::int64_t count, DType dtype, ReduceOp op) {
  return of(Collective::kAllReduce, buffers, count, dtype, op);
}

Ask reduce_scatter(Buffers buffers, std::int64_t count, DType dtype, ReduceOp op) {
  return of(Collective::kReduceScatter, buffers, count, dtype, op);
}

Ask all_gather(Buffers buffers, std::int64_t count, DType dtype) {
  return of(Collective::kAllGather, buffers, count, dtype);
}

Ask broadcast(Buffers buffers, std::int64_t count, DType dtype, int root) {
  return of(Collective::kBroadcast, buffers, count, dtype, {}, root);
}

Ask reduce(Buffers buffers, std::int64_t count, DType dtype, ReduceOp op, int root) {
  return of(Collective::kReduce, buffers, count, dtype, op, root);
}

Ask gather(Buffers buffers, std::int64_t count, DType dtype, int root) {
  return of(Collective::kGather, buffers, count, dtype, {}, root);
}

Ask scatter(Buffers buffers, std::int64_t count, DType dtype, int root) {
  return of(Collective::kScatter, buffers, count, dtype, {}, root);
}

Ask all_to_all(Buffers buffers, std::int64_t count, DType dtype) {
  return of(Collective::kAllToAll, buffers, count, dtype);
}

Ask reduce_scatter_v(Buffers buffers, Counts counts, DType dtype, ReduceOp op) {
  return in_parts(reduce_scatter(buffers, 0, dtype, op), counts);
}

Ask all_gather_v(Buffers buffers, Counts counts, DType dtype) {
  return in_parts(all_gather(buffers, 0, dtype), counts);
}

Ask gather_v(Buffers buffers, Counts counts, DType dtype, int root) {
  return in_parts(gather(buffers, 0, dtype, root), counts);
}

Ask scatter_v(Buffers buffers, Counts counts, DType dtype, int root) {
  return in_parts(scatter(buffers, 0, dtype, root), counts);
}

Ask all_to_all_v(Buffers buffers, Counts input_counts, Counts output_counts, DType dtype) {
  Ask ask = in_parts(all_to_all(buffers, 0, dtype), input_counts);
  ask.output_counts = output_counts.data();
  ask.output_parts = output_counts.size();
  return ask;
}

}  // namespace sinew::comm::ask
