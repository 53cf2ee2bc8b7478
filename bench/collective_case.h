// CollectiveCase: one collective on buffers whose result is exactly known, for benchmarks that also
// check.
//
// Inputs are small whole numbers drawn from (rank, index), chosen so that every partial result is
// exact in the element type: any algorithm in any order must give the expected bits, and one wrong
// element is counted.
//
// Never does: time. Threads: one communicator, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace sinew::bench {

// How the vector of an operation with parts is cut: evenly; rank r having r + 1 shares; or rank 0
// having all. What is not even is asked for by the operation's v-form.
enum class Parts : std::uint8_t { kEven, kRamp, kOne };
[[nodiscard]] std::string_view name_of(Parts parts);
// Whether the operation has a v-form.
[[nodiscard]] bool has_parts(sched::Collective op);

struct CollectiveShape {
  sched::Collective op = sched::Collective::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  std::int64_t count = 0;  // as the communicator's calls take it; of the v-forms the mean part
  int world = 1;
  int rank = 0;
  int root = 0;
  bool inplace = false;
  // Of sums: what every rank's input counts times. 1 to 4 and whole, or a smaller power of two, so
  // that results stay exact in every type.
  double factor = 1;
  Parts parts = Parts::kEven;  // of operations that have them

  // Whether the operation is asked for by its v-form.
  [[nodiscard]] bool uneven() const { return parts != Parts::kEven && has_parts(op); }
  // Where rank r's part of the vector begins, 0 <= r <= world, and how many elements it has.
  [[nodiscard]] std::int64_t part_begin(int r) const;
  [[nodiscard]] std::int64_t part(int r) const { return part_begin(r + 1) - part_begin(r); }
  // The rank whose part holds this element of the vector.
  [[nodiscard]] int owner(std::int64_t index) const;
  // Elements of this rank's buffers, and of the full vector.
  [[nodiscard]] std::int64_t input_count() const;
  [[nodiscard]] std::int64_t output_count() const;
  [[nodiscard]] std::int64_t full_count() const;
  // Bytes of the operation's full vector: m of the cost formulas.
  [[nodiscard]] std::int64_t full_bytes() const {
    return full_count() * static_cast<std::int64_t>(size_of(dtype));
  }
};

// The largest count whose full vector takes no more than `bytes`, at least one element if bytes >
// 0.
[[nodiscard]] std::int64_t count_for_bytes(sched::Collective op, DType dtype, int world,
                                           std::int64_t bytes);

// Bytes per second over the slowest link, as nccl-tests counts it, per byte of the full vector.
[[nodiscard]] double bus_factor(sched::Collective op, int world);

// What rank `rank` contributes at element `index`, and the reduction of it over all ranks.
[[nodiscard]] double input_value(const CollectiveShape& shape, int rank, std::int64_t index);
[[nodiscard]] double reduced_value(const CollectiveShape& shape, std::int64_t index);

class CollectiveCase {
 public:
  enum class Buffers { kPlain, kSymmetric };

  // Collective when symmetric. Fills the buffers: ordinary memory that was never written is one
  // page of zeros, which no call need read from memory.
  CollectiveCase(comm::Communicator& communicator, const CollectiveShape& shape, Buffers buffers);
  ~CollectiveCase();
  CollectiveCase(const CollectiveCase&) = delete;
  CollectiveCase& operator=(const CollectiveCase&) = delete;

  [[nodiscard]] void* input() const { return input_; }
  [[nodiscard]] void* output() const { return output_; }
  void fill();  // anew, once something has run
  void run(std::string_view algorithm);
  // Elements of this rank's output that differ from the expected ones after fill() and one run.
  [[nodiscard]] std::int64_t count_wrong() const;

 private:
  struct Memory;
  void place(Buffers buffers);
  void run_parts(const comm::Call& call);

  comm::Communicator& communicator_;
  CollectiveShape shape_;
  std::unique_ptr<Memory> memory_;
  void* input_ = nullptr;
  void* output_ = nullptr;
  std::vector<std::int64_t> parts_;      // [world], of the v-forms
  std::vector<std::int64_t> own_part_;   // [world]: this rank's part, from or to each
  alignas(8) std::byte factor_[8] = {};  // one element
};

}  // namespace sinew::bench
