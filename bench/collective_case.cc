#include "bench/collective_case.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/element.h"
#include "sched/base/check.h"

namespace sinew::bench {
namespace {

using sched::Collective;

constexpr std::size_t kAlignment = 64;

// Whole numbers up to this are exact in the type, so every partial sum of them is.
double exact_max(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return 256;
    case DType::kF16:
      return 2048;
    case DType::kU8:
      return 255;
    case DType::kI8:
      return 127;
    case DType::kE4m3:
      return 16;
    case DType::kE5m2:
      return 8;
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU32:
    case DType::kU64:
      return 1 << 20;
  }
  __builtin_unreachable();
}

// A well-mixed 64-bit word of (rank, index): the finaliser of MurmurHash3 by Appleby.
std::uint64_t mixed(int rank, std::int64_t index) {
  auto word = static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15U +
              static_cast<std::uint64_t>(rank + 1);
  word = (word ^ (word >> 33)) * 0xFF51AFD7ED558CCDU;
  word = (word ^ (word >> 33)) * 0xC4CEB9FE1A85EC53U;
  return word ^ (word >> 33);
}

double below(std::uint64_t word, double limit) {
  return static_cast<double>(word % static_cast<std::uint64_t>(std::max(1.0, limit)));
}

// Where the type counts too few for each rank to give something, so many ranks do, in turn.
double sum_part(const CollectiveShape& shape, int rank, std::int64_t index) {
  const double most = exact_max(shape.dtype) / std::max(1.0, shape.factor);
  const auto givers = std::clamp<std::int64_t>(static_cast<std::int64_t>(most / 2), 1, shape.world);
  if ((rank + index) % shape.world >= givers) return 0;
  return below(mixed(rank, index), most / static_cast<double>(givers));
}

// Ranks r and world-1-r deviate by +1 and -1 from a value they share, so the average is that value.
// Where the type counts too few for that, one rank in turn gives something.
double average_part(const CollectiveShape& shape, int rank, std::int64_t index) {
  const double most = exact_max(shape.dtype);
  if (most < 3.0 * shape.world)
    return rank == index % shape.world ? 1 + below(mixed(-1, index), most) : 0;
  const int mirror = shape.world - 1 - rank;
  const double shared = 1 + below(mixed(-1, index), most / shape.world - 2);
  return shared + (rank < mirror ? 1 : rank > mirror ? -1 : 0);
}

template <typename T>
T stored(double value) {
  return kernels::narrow<T>(static_cast<kernels::Wide<T>>(value));
}

// Ranks beyond this one multiply by 1, so that products stay exact: at most 2^6.
constexpr int kFactors = 6;

double expected_value(const CollectiveShape& shape, std::int64_t index) {
  const std::int64_t begin = has_parts(shape.op) ? shape.part_begin(shape.rank) : 0;
  switch (shape.op) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return reduced_value(shape, index);
    case Collective::kReduceScatter:
      return reduced_value(shape, begin + index);
    case Collective::kAllGather:
    case Collective::kGather: {
      const int owner = shape.owner(index);
      return input_value(shape, owner, index - shape.part_begin(owner));
    }
    case Collective::kBroadcast:
      return input_value(shape, shape.root, index);
    case Collective::kScatter:
      return input_value(shape, shape.root, begin + index);
    case Collective::kAllToAll: {
      const std::int64_t part = shape.part(shape.rank);
      return input_value(shape, static_cast<int>(index / part), begin + index % part);
    }
    case Collective::kBarrier:
      return 0;
  }
  __builtin_unreachable();
}

bool has_result(const CollectiveShape& shape) {
  const bool at_root = shape.op == Collective::kReduce || shape.op == Collective::kGather;
  return !at_root || shape.rank == shape.root;
}

}  // namespace

std::string_view name_of(Parts parts) {
  switch (parts) {
    case Parts::kEven:
      return "even";
    case Parts::kRamp:
      return "ramp";
    case Parts::kOne:
      return "one";
  }
  __builtin_unreachable();
}

bool has_parts(Collective op) {
  switch (op) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return true;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      return false;
  }
  __builtin_unreachable();
}

std::int64_t CollectiveShape::part_begin(int r) const {
  const std::int64_t ranks = world;
  switch (parts) {
    case Parts::kEven:
      return r * count;
    case Parts::kRamp:  // r (r + 1) / 2 of world (world + 1) / 2 shares come before
      return count * r * (r + 1) / (ranks + 1);
    case Parts::kOne:
      return r > 0 ? count * ranks : 0;
  }
  __builtin_unreachable();
}

int CollectiveShape::owner(std::int64_t index) const {
  if (parts == Parts::kEven) return static_cast<int>(index / count);
  int low = 0;  // the last rank whose part does not begin behind the element
  for (int high = world; high - low > 1;) {
    const int middle = (low + high) / 2;
    (part_begin(middle) <= index ? low : high) = middle;
  }
  return low;
}

std::int64_t CollectiveShape::full_count() const { return has_parts(op) ? count * world : count; }

std::int64_t CollectiveShape::input_count() const {
  const bool own = op == Collective::kAllGather || op == Collective::kGather;
  return own ? part(rank) : full_count();
}

std::int64_t CollectiveShape::output_count() const {
  if (op == Collective::kAllToAll) return world * part(rank);
  const bool own = op == Collective::kReduceScatter || op == Collective::kScatter;
  return own ? part(rank) : full_count();
}

std::int64_t count_for_bytes(Collective op, DType dtype, int world, std::int64_t bytes) {
  if (op == Collective::kBarrier || bytes == 0) return 0;
  CollectiveShape one = {.op = op, .dtype = dtype, .count = 1, .world = world};
  return std::max<std::int64_t>(1, bytes / one.full_bytes());
}

double bus_factor(Collective op, int world) {
  const double others = static_cast<double>(world - 1) / world;
  switch (op) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return others;
    case Collective::kBroadcast:
    case Collective::kReduce:
      return 1;
    case Collective::kBarrier:
      return 0;
  }
  __builtin_unreachable();
}

double input_value(const CollectiveShape& shape, int rank, std::int64_t index) {
  switch (shape.reduce) {
    case ReduceOp::kSum:
      return sum_part(shape, rank, index);
    case ReduceOp::kProd:
      return rank < kFactors ? 1 + below(mixed(rank, index), 2) : 1;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return below(mixed(rank, index), 120);
    case ReduceOp::kAvg:
      return average_part(shape, rank, index);
  }
  __builtin_unreachable();
}

double reduced_value(const CollectiveShape& shape, std::int64_t index) {
  double result = input_value(shape, 0, index);
  for (int rank = 1; rank < shape.world; ++rank) {
    const double value = input_value(shape, rank, index);
    switch (shape.reduce) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        result += value;
        break;
      case ReduceOp::kProd:
        result *= value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
    }
  }
  if (shape.reduce == ReduceOp::kAvg) return result / shape.world;
  return shape.reduce == ReduceOp::kSum ? result * shape.factor : result;
}

struct CollectiveCase::Memory {
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  std::unique_ptr<std::byte[], Free> plain[2];
  comm::Symmetric symmetric[2];

  std::byte* allocate(comm::Communicator& communicator, int which, std::size_t size_bytes,
                      Buffers buffers) {
    size_bytes = std::max(size_bytes, kAlignment);
    if (buffers == Buffers::kSymmetric) {
      symmetric[which] = communicator.allocate(size_bytes);
      return symmetric[which].get();
    }
    const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    plain[which].reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (plain[which] == nullptr) throw std::bad_alloc();
    return plain[which].get();
  }
};

namespace {

// Of all ranks: symmetric memory is as large on each.
std::int64_t most(CollectiveShape shape, std::int64_t (CollectiveShape::*elements)() const) {
  std::int64_t result = 0;
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank)
    result = std::max(result, (shape.*elements)());
  return result;
}

}  // namespace

CollectiveCase::CollectiveCase(comm::Communicator& communicator, const CollectiveShape& shape,
                               Buffers buffers)
    : communicator_(communicator), shape_(shape), memory_(std::make_unique<Memory>()) {
  visit(shape.dtype, [&](auto zero) {
    const auto factor = stored<decltype(zero)>(shape.factor);
    std::memcpy(factor_, &factor, sizeof factor);
  });
  for (int r = 0; shape.uneven() && r < shape.world; ++r) {
    parts_.push_back(shape.part(r));
    own_part_.push_back(shape.part(shape.rank));
  }
  place(buffers);
  fill();
}

void CollectiveCase::place(Buffers buffers) {
  const CollectiveShape& shape = shape_;
  const std::size_t element = size_of(shape.dtype);
  const auto input_most = static_cast<std::size_t>(most(shape, &CollectiveShape::input_count));
  const auto output_most = static_cast<std::size_t>(most(shape, &CollectiveShape::output_count));
  if (!shape.inplace) {
    input_ = memory_->allocate(communicator_, 0, input_most * element, buffers);
    output_ = memory_->allocate(communicator_, 1, output_most * element, buffers);
    // MPI's broadcast knows one buffer, so both libraries are asked for the same.
    if (shape.op == Collective::kBroadcast && shape.rank == shape.root) output_ = input_;
    return;
  }
  std::byte* all =
      memory_->allocate(communicator_, 0, std::max(input_most, output_most) * element, buffers);
  input_ = output_ = all;
  if (!has_parts(shape.op) || shape.op == Collective::kAllToAll) return;
  std::byte* own = all + static_cast<std::size_t>(shape.part_begin(shape.rank)) * element;
  const bool gathers = shape.op == Collective::kAllGather || shape.op == Collective::kGather;
  (gathers ? input_ : output_) = own;
}

CollectiveCase::~CollectiveCase() = default;

void CollectiveCase::fill() {
  if (!shape_.inplace) {
    std::memset(output_, 0xA5,
                static_cast<std::size_t>(shape_.output_count()) * size_of(shape_.dtype));
  }
  visit(shape_.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* input = static_cast<T*>(input_);
    for (std::int64_t i = 0; i < shape_.input_count(); ++i) {
      input[i] = stored<T>(input_value(shape_, shape_.rank, i));
    }
  });
}

void CollectiveCase::run(std::string_view algorithm) {
  const comm::Call call = {.algorithm = algorithm,
                           .factor = shape_.factor != 1 ? factor_ : nullptr};
  if (shape_.uneven()) return run_parts(call);
  const std::int64_t count = shape_.count;
  switch (shape_.op) {
    case Collective::kAllReduce:
      return communicator_.all_reduce(input_, output_, count, shape_.dtype, shape_.reduce, call);
    case Collective::kReduceScatter:
      return communicator_.reduce_scatter(input_, output_, count, shape_.dtype, shape_.reduce,
                                          call);
    case Collective::kAllGather:
      return communicator_.all_gather(input_, output_, count, shape_.dtype, call);
    case Collective::kBroadcast:
      return communicator_.broadcast(input_, output_, count, shape_.dtype, shape_.root, call);
    case Collective::kReduce:
      return communicator_.reduce(input_, output_, count, shape_.dtype, shape_.reduce, shape_.root,
                                  call);
    case Collective::kBarrier:
      return communicator_.barrier(call);
    case Collective::kGather:
      return communicator_.gather(input_, output_, count, shape_.dtype, shape_.root, call);
    case Collective::kScatter:
      return communicator_.scatter(input_, output_, count, shape_.dtype, shape_.root, call);
    case Collective::kAllToAll:
      return communicator_.all_to_all(input_, output_, count, shape_.dtype, call);
  }
}

void CollectiveCase::run_parts(const comm::Call& call) {
  const DType dtype = shape_.dtype;
  switch (shape_.op) {
    case Collective::kReduceScatter:
      return communicator_.reduce_scatter_v(input_, output_, parts_, dtype, shape_.reduce, call);
    case Collective::kAllGather:
      return communicator_.all_gather_v(input_, output_, parts_, dtype, call);
    case Collective::kGather:
      return communicator_.gather_v(input_, output_, parts_, dtype, shape_.root, call);
    case Collective::kScatter:
      return communicator_.scatter_v(input_, output_, parts_, dtype, shape_.root, call);
    case Collective::kAllToAll:
      return communicator_.all_to_all_v(input_, parts_, output_, own_part_, dtype, call);
    default:
      CHECK(has_parts(shape_.op));
  }
}

std::int64_t CollectiveCase::count_wrong() const {
  if (!has_result(shape_)) return 0;
  return visit(shape_.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* output = static_cast<const T*>(output_);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < shape_.output_count(); ++i) {
      const T expected = stored<T>(expected_value(shape_, i));
      if (std::memcmp(&expected, &output[i], sizeof(T)) != 0) ++wrong;
    }
    return wrong;
  });
}

}  // namespace sinew::bench
