#include "bench/mpi_baseline.h"

#include <mpi.h>

#include <limits>
#include <string_view>

#include "sched/base/check.h"

namespace sinew::bench {
namespace {

using sched::Collective;

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kU8:
      return MPI_UINT8_T;
    case DType::kI8:
      return MPI_INT8_T;
    case DType::kU32:
      return MPI_UINT32_T;
    case DType::kU64:
      return MPI_UINT64_T;
    case DType::kBf16:
    case DType::kF16:
    case DType::kE4m3:
    case DType::kE5m2:
      return MPI_DATATYPE_NULL;
  }
  __builtin_unreachable();
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return MPI_SUM;
    case ReduceOp::kProd:
      return MPI_PROD;
    case ReduceOp::kMin:
      return MPI_MIN;
    case ReduceOp::kMax:
      return MPI_MAX;
  }
  __builtin_unreachable();
}

}  // namespace

std::string why_mpi_lacks(const CollectiveShape& shape) {
  if (shape.op == Collective::kBarrier) return {};
  if (mpi_type(shape.dtype) == MPI_DATATYPE_NULL)
    return "MPI has no type " + std::string(name_of(shape.dtype));
  // Of v-forms the places too are counted, of an all-to-all by one rank all parts of all; ranks
  // have parts of different sizes and must come to one answer.
  const std::int64_t most = shape.uneven() ? shape.full_count() * shape.world : shape.count;
  if (most > std::numeric_limits<int>::max())
    return "MPI counts to " + std::to_string(std::numeric_limits<int>::max()) + " elements";
  return {};
}

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string_view said(text, static_cast<std::size_t>(length));
  std::string words;
  for (const char letter : said.substr(0, said.find_first_of(",\n"))) {
    const bool blank = letter == ' ' || letter == '\t';
    if (!blank) {
      words += letter;
    } else if (!words.empty() && words.back() != ' ') {
      words += ' ';
    }
  }
  return words;
}

MpiCollective::MpiCollective(const CollectiveShape& shape) : shape_(shape) {
  for (int r = 0; shape.uneven() && r < shape.world; ++r) {
    parts_.push_back(static_cast<int>(shape.part(r)));
    begins_.push_back(static_cast<int>(shape.part_begin(r)));
    own_parts_.push_back(static_cast<int>(shape.part(shape.rank)));
    own_begins_.push_back(r * own_parts_.front());
  }
}

void MpiCollective::run_parts(const void* input, void* output) const {
  const CollectiveShape& shape = shape_;
  const auto own = static_cast<int>(shape.part(shape.rank));
  const MPI_Datatype type = mpi_type(shape.dtype);
  const MPI_Comm all = MPI_COMM_WORLD;
  const bool is_root = shape.rank == shape.root;
  const void* in = shape.inplace ? MPI_IN_PLACE : input;
  switch (shape.op) {
    case Collective::kReduceScatter:
      MPI_Reduce_scatter(in, shape.inplace ? const_cast<void*>(input) : output, parts_.data(), type,
                         mpi_op(shape.reduce), all);
      return;
    case Collective::kAllGather:
      MPI_Allgatherv(in, own, type, output, parts_.data(), begins_.data(), type, all);
      return;
    case Collective::kGather:
      MPI_Gatherv(shape.inplace && is_root ? MPI_IN_PLACE : input, own, type, output, parts_.data(),
                  begins_.data(), type, shape.root, all);
      return;
    case Collective::kScatter:
      MPI_Scatterv(input, parts_.data(), begins_.data(), type,
                   shape.inplace && is_root ? MPI_IN_PLACE : output, own, type, shape.root, all);
      return;
    case Collective::kAllToAll:
      MPI_Alltoallv(in, parts_.data(), begins_.data(), type, output, own_parts_.data(),
                    own_begins_.data(), type, all);
      return;
    default:
      CHECK(has_parts(shape.op));
  }
}

void MpiCollective::run(const void* input, void* output) const {
  const CollectiveShape& shape = shape_;
  if (shape.uneven()) return run_parts(input, output);
  const int count = static_cast<int>(shape.count);
  const MPI_Datatype type = mpi_type(shape.dtype);
  const MPI_Op op = mpi_op(shape.reduce);
  const MPI_Comm all = MPI_COMM_WORLD;
  const bool is_root = shape.rank == shape.root;
  const void* in = shape.inplace ? MPI_IN_PLACE : input;
  switch (shape.op) {
    case Collective::kAllReduce:
      MPI_Allreduce(in, output, count, type, op, all);
      return;
    case Collective::kReduceScatter:
      // In place, MPI takes the whole vector from the receive buffer and puts this rank's block at
      // its start.
      MPI_Reduce_scatter_block(in, shape.inplace ? const_cast<void*>(input) : output, count, type,
                               op, all);
      return;
    case Collective::kAllGather:
      MPI_Allgather(in, count, type, output, count, type, all);
      return;
    case Collective::kBroadcast:
      MPI_Bcast(is_root ? const_cast<void*>(input) : output, count, type, shape.root, all);
      return;
    case Collective::kReduce:
      MPI_Reduce(shape.inplace && is_root ? MPI_IN_PLACE : input, output, count, type, op,
                 shape.root, all);
      return;
    case Collective::kGather:
      MPI_Gather(shape.inplace && is_root ? MPI_IN_PLACE : input, count, type, output, count, type,
                 shape.root, all);
      return;
    case Collective::kScatter:
      MPI_Scatter(input, count, type, shape.inplace && is_root ? MPI_IN_PLACE : output, count, type,
                  shape.root, all);
      return;
    case Collective::kAllToAll:
      MPI_Alltoall(in, count, type, output, count, type, all);
      return;
    case Collective::kBarrier:
      MPI_Barrier(all);
      return;
  }
}

}  // namespace sinew::bench
