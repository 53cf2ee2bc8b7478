#include "tests/comm/support/collective_case.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "comm/select.h"
#include "kernels/element.h"
#include "sched/collective/registry.h"

namespace sinew::comm::testing {

namespace {

using sched::Collective;

constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};

// What rank contributes at an index of the logical vector. Sums stay below 64 and products below 3
// up to world 17, so that 16-bit floats and bytes hold every partial result; of 8-bit floats, which
// count to 8, at most 7 ranks in turn contribute 1.
double contribution(DType dtype, ReduceOp op, int rank, std::int64_t index, int world) {
  const bool few = dtype == DType::kE4m3 || dtype == DType::kE5m2;
  const auto mixed =
      static_cast<std::uint64_t>(index) * 2654435761U + static_cast<std::uint64_t>(rank) * 40503U;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      if (few) return (rank + index) % world < 7 ? static_cast<double>((mixed >> 7) % 2) : 0;
      return static_cast<double>((mixed >> 7) % 4);
    case ReduceOp::kProd:
      return index % (world + 1) == rank ? 2 : 1;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return static_cast<double>((mixed >> 5) % 101);
  }
  return 0;
}

double expected(const CollectiveCase& test, std::int64_t index, int world) {
  double result = contribution(test.dtype, test.reduce, 0, index, world);
  for (int rank = 1; rank < world; ++rank) {
    const double value = contribution(test.dtype, test.reduce, rank, index, world);
    switch (test.reduce) {
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
  if (test.reduce != ReduceOp::kAvg) return result;
  if (!info(test.dtype).is_float) return std::trunc(result / world);
  // The type's own division: one rounding, from f32 for the narrow types.
  return test.dtype == DType::kF64
             ? result / world
             : static_cast<double>(static_cast<float>(result) / static_cast<float>(world));
}

template <typename T>
T encode(double value) {
  return kernels::narrow<T>(static_cast<kernels::Wide<T>>(value));
}

void write_value(DType dtype, std::byte* data, std::int64_t index, double value) {
  visit(dtype, [&](auto zero) {
    const auto encoded = encode<decltype(zero)>(value);
    std::memcpy(data + index * static_cast<std::int64_t>(sizeof encoded), &encoded, sizeof encoded);
  });
}

bool holds(DType dtype, const std::byte* data, std::int64_t index, double value) {
  return visit(dtype, [&](auto zero) {
    const auto encoded = encode<decltype(zero)>(value);
    return std::memcmp(data + index * static_cast<std::int64_t>(sizeof encoded), &encoded,
                       sizeof encoded) == 0;
  });
}

// A buffer between guard bytes, shifted by whole elements off its alignment.
class Guarded {
 public:
  Guarded(std::int64_t bytes, std::int64_t shift_bytes)
      : size_(static_cast<std::size_t>(bytes)),
        begin_(kGuardBytes + static_cast<std::size_t>(shift_bytes)),
        memory_(begin_ + size_ + kGuardBytes, kGuard) {}
  [[nodiscard]] std::byte* data() { return size_ == 0 ? nullptr : memory_.data() + begin_; }
  [[nodiscard]] bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if ((i < begin_ || i >= begin_ + size_) && memory_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  std::size_t size_;
  std::size_t begin_;
  std::vector<std::byte> memory_;
};

struct Shape {
  std::int64_t input_elements;
  std::int64_t output_elements;
  std::int64_t input_first;  // index in the logical vector
  std::int64_t output_first;
};

Shape shape_of(const CollectiveCase& test, int rank, int world) {
  const std::int64_t n = test.count;
  switch (test.op) {
    case Collective::kReduceScatter:
      return {n * world, n, 0, n * rank};
    case Collective::kAllGather:
      return {n, n * world, n * rank, 0};
    case Collective::kBroadcast:
      return {rank == test.root ? n : 0, n, 0, 0};
    case Collective::kReduce:
      return {n, rank == test.root ? n : 0, 0, 0};
    case Collective::kGather:
      return {n, rank == test.root ? n * world : 0, n * rank, 0};
    case Collective::kScatter:
      return {rank == test.root ? n * world : 0, n, 0, n * rank};
    case Collective::kAllToAll:
      return {n * world, n * world, 0, 0};
    case Collective::kBarrier:
      return {0, 0, 0, 0};
    case Collective::kAllReduce:
      return {n, n, 0, 0};
  }
  return {};
}

// Of moves without arithmetic: who contributed what lies at this index of the output of `rank`.
double moved_value(const CollectiveCase& test, int rank, std::int64_t index) {
  const bool from_root = test.op == Collective::kBroadcast || test.op == Collective::kScatter;
  const int from = from_root ? test.root : static_cast<int>(index / test.count);
  const std::int64_t at =
      test.op == Collective::kAllToAll ? rank * test.count + index % test.count : index;
  return contribution(test.dtype, ReduceOp::kMax, from, at, 1);
}

bool reduces(Collective op) {
  return op == Collective::kAllReduce || op == Collective::kReduceScatter ||
         op == Collective::kReduce;
}

double input_value(const CollectiveCase& test, int rank, std::int64_t index, int world) {
  return reduces(test.op) ? contribution(test.dtype, test.reduce, rank, index, world)
                          : contribution(test.dtype, ReduceOp::kMax, rank, index, 1);
}

double output_value(const CollectiveCase& test, int rank, std::int64_t index, int world) {
  return reduces(test.op) ? expected(test, index, world) : moved_value(test, rank, index);
}

void call(Communicator& communicator, const CollectiveCase& test, const void* input, void* output) {
  const Call how{.algorithm = test.algorithm};
  const auto [n, dtype, reduce, root] = std::tuple(test.count, test.dtype, test.reduce, test.root);
  if (test.form == Form::kStarted) {
    Request request;
    switch (test.op) {
      case Collective::kAllReduce:
        request = communicator.start_all_reduce(input, output, n, dtype, reduce, how);
        break;
      case Collective::kReduceScatter:
        request = communicator.start_reduce_scatter(input, output, n, dtype, reduce, how);
        break;
      case Collective::kAllGather:
        request = communicator.start_all_gather(input, output, n, dtype, how);
        break;
      case Collective::kBroadcast:
        request = communicator.start_broadcast(input, output, n, dtype, root, how);
        break;
      case Collective::kReduce:
        request = communicator.start_reduce(input, output, n, dtype, reduce, root, how);
        break;
      case Collective::kGather:
        request = communicator.start_gather(input, output, n, dtype, root, how);
        break;
      case Collective::kScatter:
        request = communicator.start_scatter(input, output, n, dtype, root, how);
        break;
      case Collective::kAllToAll:
        request = communicator.start_all_to_all(input, output, n, dtype, how);
        break;
      case Collective::kBarrier:
        request = communicator.start_barrier(how);
        break;
    }
    request.wait();
    return;
  }
  switch (test.op) {
    case Collective::kAllReduce:
      communicator.all_reduce(input, output, n, dtype, reduce, how);
      break;
    case Collective::kReduceScatter:
      communicator.reduce_scatter(input, output, n, dtype, reduce, how);
      break;
    case Collective::kAllGather:
      communicator.all_gather(input, output, n, dtype, how);
      break;
    case Collective::kBroadcast:
      communicator.broadcast(input, output, n, dtype, root, how);
      break;
    case Collective::kReduce:
      communicator.reduce(input, output, n, dtype, reduce, root, how);
      break;
    case Collective::kGather:
      communicator.gather(input, output, n, dtype, root, how);
      break;
    case Collective::kScatter:
      communicator.scatter(input, output, n, dtype, root, how);
      break;
    case Collective::kAllToAll:
      communicator.all_to_all(input, output, n, dtype, how);
      break;
    case Collective::kBarrier:
      communicator.barrier(how);
      break;
  }
}

}  // namespace

std::string describe(const CollectiveCase& test) {
  return fmt::format("{}/{} {} {} count {} root {} {} {} shift {}", sched::name_of(test.op),
                     test.algorithm, name_of(test.dtype), name_of(test.reduce), test.count,
                     test.root, test.place == Place::kInPlace ? "in place" : "apart",
                     test.form == Form::kStarted ? "started" : "blocking", test.shift);
}

std::string run_case(Communicator& communicator, const CollectiveCase& test) {
  const int rank = communicator.rank();
  const int world = communicator.world();
  const auto size = static_cast<std::int64_t>(size_of(test.dtype));
  const Shape shape = shape_of(test, rank, world);
  const bool in_place = test.place == Place::kInPlace;
  // In place both are views of the larger buffer.
  Guarded first(
      (in_place ? std::max(shape.input_elements, shape.output_elements) : shape.input_elements) *
          size,
      test.shift * size);
  Guarded second(in_place ? 0 : shape.output_elements * size, test.shift * size);
  std::byte* input = first.data();
  std::byte* output = in_place ? first.data() : second.data();
  if (in_place && shape.input_elements < shape.output_elements && input != nullptr)
    input += shape.input_first * size;
  if (in_place && shape.output_elements < shape.input_elements && output != nullptr)
    output += shape.output_first * size;
  for (std::int64_t i = 0; i < shape.input_elements; ++i) {
    write_value(test.dtype, input, i, input_value(test, rank, shape.input_first + i, world));
  }
  call(communicator, test, input, output);
  for (std::int64_t i = 0; i < shape.output_elements; ++i) {
    const double want = output_value(test, rank, shape.output_first + i, world);
    if (!holds(test.dtype, output, i, want)) {
      return fmt::format("{}: rank {} of {}: element {} of the output is not {}", describe(test),
                         rank, world, i, want);
    }
  }
  if (!in_place) {
    for (std::int64_t i = 0; i < shape.input_elements; ++i) {
      if (!holds(test.dtype, input, i, input_value(test, rank, shape.input_first + i, world))) {
        return fmt::format("{}: rank {} of {}: input element {} was changed", describe(test), rank,
                           world, i);
      }
    }
  }
  if (!first.intact() || !second.intact()) {
    return fmt::format("{}: rank {} of {}: bytes outside a buffer were written", describe(test),
                       rank, world);
  }
  return {};
}

const std::vector<Collective>& operations() {
  static const std::vector<Collective> all = [] {
    std::vector<Collective> found;
    for (const sched::Algorithm& row : sched::algorithms()) {
      if (found.empty() || found.back() != row.op) found.push_back(row.op);
    }
    return found;
  }();
  return all;
}

std::vector<std::int64_t> interesting_counts(int world) {
  return {0,
          1,
          2,
          world - 1,
          world,
          world + 1,
          13,
          14,
          15,
          3 * world + 2,
          63,
          64,
          65,
          255,
          256,
          257,
          511,
          512,
          513,
          1000,
          4095,
          4096,
          4097,
          8191,
          8192,
          8193,
          2 * 8192 + 1,
          32'767,
          32'768 + 3,
          65'536,
          100'003};
}

CollectiveCase draw_case(std::uint64_t seed, std::uint64_t index, int world) {
  const Philox philox(seed, 0);
  const auto first = philox.words(index, 1);
  const auto second = philox.words(index, 2);
  CollectiveCase test;
  for (std::uint32_t attempt = 0;; ++attempt) {
    const sched::Algorithm& row =
        sched::algorithms()[(first[0] + attempt) % sched::algorithms().size()];
    if (!row.refuse({.world = world}).empty()) continue;
    test.op = row.op;
    test.algorithm = first[1] % 8 == 0 ? "auto" : std::string(row.name);
    break;
  }
  test.dtype = kDTypes[first[2] % kDTypes.size()].dtype;
  test.reduce = kReduceOps[first[3] % kReduceOps.size()].op;
  const std::vector<std::int64_t> counts = interesting_counts(world);
  test.count = counts[second[0] % counts.size()];
  test.root = static_cast<int>(second[1] % static_cast<std::uint32_t>(world));
  test.place = second[2] % 2 == 0 ? Place::kApart : Place::kInPlace;
  test.form = second[2] % 8 < 2 ? Form::kStarted : Form::kBlocking;
  test.shift = second[3] % 3 == 0 ? 1 + static_cast<int>(second[3] % 7) : 0;
  return test;
}

bool wants_matrix() { return std::getenv("SINEW_TEST_FULL") != nullptr; }

namespace {

constexpr std::int64_t kSmallCount = 600;

std::string run_forms(Communicator& communicator, CollectiveCase test) {
  for (const Place place : {Place::kApart, Place::kInPlace}) {
    for (const Form form : {Form::kBlocking, Form::kStarted}) {
      test.place = place;
      test.form = form;
      const std::string wrong = run_case(communicator, test);
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

}  // namespace

std::string run_matrix(Communicator& communicator) {
  const int world = communicator.world();
  for (const sched::Algorithm& row : sched::algorithms()) {
    for (const int root : {0, world - 1}) {
      if (!row.refuse({.world = world, .root = root}).empty()) continue;
      if (root != 0 && !sched::Contract{.op = row.op}.rooted()) continue;
      for (const std::int64_t count : interesting_counts(world)) {
        for (const DTypeInfo& type : kDTypes) {
          for (const ReduceOpInfo& reduce : kReduceOps) {
            const bool plain = type.dtype == DType::kF32 && reduce.op == ReduceOp::kSum;
            if (!plain &&
                (count > kSmallCount || (!reduces(row.op) && reduce.op != ReduceOp::kSum)))
              continue;
            const std::string wrong = run_forms(communicator, {.op = row.op,
                                                               .algorithm = std::string(row.name),
                                                               .dtype = type.dtype,
                                                               .reduce = reduce.op,
                                                               .count = count,
                                                               .root = root});
            if (!wrong.empty()) return wrong;
          }
        }
      }
    }
  }
  return {};
}

std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const char* text = std::getenv("SINEW_SEED");
    const std::uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 20260101;
    fmt::print("SINEW_SEED={}\n", value);
    return value;
  }();
  return seed;
}

}  // namespace sinew::comm::testing
