// Parallel: the communicators of one rank's groups, and the sums that training makes over them.
//
// A group of one rank has no communicator (null): nothing is moved and nothing is counted.
// Every sum here runs over the ranks in increasing order, whatever the size of the array or the
// position of an element in it (the one-shot and two-shot algorithms; sched/collective/direct.cc).
// So an element's bits do not depend on where a layout put it, and layouts that differ only along
// the pipeline agree bit for bit.
//
// Threads: one rank, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <type_traits>

#include "comm/communicator.h"
#include "comm/device_door.h"
#include "sched/plan/grid.h"

namespace sinew::model {

template <typename T>
constexpr DType dtype_of_v = std::is_same_v<T, double> ? DType::kF64
                             : std::is_same_v<T, bf16> ? DType::kBf16
                                                       : DType::kF32;

// The pipeline ranks that hold the model's first and last stage.
struct PipelineEnds {
  int first = 0;
  int last = 0;
};

class Parallel {
 public:
  // Collective over `world`, whose size is grid.world(). `world` must outlive this.
  // copies: neighbouring tensor ranks that hold the same key/value heads. shard: data ranks that
  // ZeRO cuts over, a divisor of dp x cp; 0: all.
  Parallel(comm::Communicator& world, const sched::Grid& grid, PipelineEnds ends, int copies = 1,
           int shard = 0);
  // Stages in the order of the ranks.
  Parallel(comm::Communicator& world, const sched::Grid& grid)
      : Parallel(world, grid, {0, grid.sizes().pp - 1}) {}

  [[nodiscard]] const sched::Grid& grid() const { return grid_; }
  [[nodiscard]] int rank() const { return world_.rank(); }
  [[nodiscard]] const sched::PerAxis& coordinates() const { return coordinates_; }
  [[nodiscard]] comm::Communicator& world() const { return world_; }
  [[nodiscard]] comm::Communicator* tensor() const { return tensor_.get(); }
  [[nodiscard]] comm::Communicator* pipeline() const { return pipeline_.get(); }
  [[nodiscard]] comm::Communicator* context() const { return context_.get(); }
  // Over dp x cp: the ranks that hold the same parameters and see different positions, context rank
  // by context rank of one replica after the other.
  [[nodiscard]] comm::Communicator* data() const { return data_.get(); }
  [[nodiscard]] int data_world() const { return grid_.sizes().dp * grid_.sizes().cp; }
  [[nodiscard]] int data_rank() const {
    return coordinates_.dp * grid_.sizes().cp + coordinates_.cp;
  }
  // Where ZeRO cuts over groups of the data ranks, neighbours among them: this rank's group, and
  // the ranks of all groups that hold what it does. Else all data ranks, and null.
  [[nodiscard]] comm::Communicator* shard() const { return hybrid() ? shard_.get() : data(); }
  [[nodiscard]] comm::Communicator* shard_groups() const { return shard_groups_.get(); }
  [[nodiscard]] bool hybrid() const { return shard_groups_ != nullptr; }
  // Whether this rank stands for those that hold what it does of what ZeRO cuts.
  [[nodiscard]] bool in_first_group() const { return data_rank() < shard_ranks_; }
  // The tensor ranks that hold the same key/value heads.
  [[nodiscard]] comm::Communicator* copies() const { return copies_.get(); }
  // The first and the last stage's ranks where they are two: they share the tied token table.
  [[nodiscard]] comm::Communicator* tie() const { return tie_.get(); }

  // Collective. From now on what the groups do reaches device memory; the world's sums stay with
  // the host, and so do the pipeline's messages where its ranks cannot map each other.
  enum class Moves : std::uint8_t { kCollectives, kMessages };  // messages: collectives, too
  using OpenDoor = std::function<std::unique_ptr<comm::DeviceDoor>(comm::Communicator&, Moves)>;
  void open_doors(const OpenDoor& open);
  // Waits for the device. Throws comm::Error when a collective on it failed.
  void check_doors();
  // Collective: needed before the device's memory goes.
  void close_doors();

  [[nodiscard]] bool first_stage() const { return coordinates_.pp == ends_.first; }
  [[nodiscard]] bool last_stage() const { return coordinates_.pp == ends_.last; }

 private:
  [[nodiscard]] std::array<comm::Communicator*, 8> device_groups() const {
    return {tensor(), data(), shard_.get(), shard_groups(), copies(), tie(), context(), pipeline()};
  }

  comm::Communicator& world_;
  sched::Grid grid_;
  PipelineEnds ends_;
  sched::PerAxis coordinates_;
  std::unique_ptr<comm::Communicator> tensor_;
  std::unique_ptr<comm::Communicator> pipeline_;
  std::unique_ptr<comm::Communicator> context_;
  std::unique_ptr<comm::Communicator> data_;
  int shard_ranks_;
  std::unique_ptr<comm::Communicator> shard_;
  std::unique_ptr<comm::Communicator> shard_groups_;
  std::unique_ptr<comm::Communicator> copies_;
  std::unique_ptr<comm::Communicator> tie_;
};

// data[i] = reduction over the group's ranks, in rank order; no-op for a null group.
void reduce_over(comm::Communicator* group, void* data, std::int64_t count, DType dtype,
                 ReduceOp op);
inline void sum_over(comm::Communicator* group, void* data, std::int64_t count, DType dtype) {
  reduce_over(group, data, count, dtype, ReduceOp::kSum);
}
template <typename T>
void sum_over(comm::Communicator* group, T* data, std::int64_t count) {
  sum_over(group, data, count, dtype_of_v<T>);
}
inline void max_over(comm::Communicator* group, void* data, std::int64_t count, DType dtype) {
  reduce_over(group, data, count, dtype, ReduceOp::kMax);
}
template <typename T>
void max_over(comm::Communicator* group, T* data, std::int64_t count) {
  max_over(group, data, count, dtype_of_v<T>);
}
// The algorithm of such a sum over an array of this size.
[[nodiscard]] std::string_view sum_algorithm(std::int64_t array_bytes);
// own = this rank's `count` elements of the sum of `parts`, [ranks, count], in rank order.
template <typename T>
void scatter_sum_over(comm::Communicator* group, const T* parts, T* own, std::int64_t count) {
  group->reduce_scatter(parts, own, count, dtype_of_v<T>, ReduceOp::kSum, {.algorithm = "direct"});
}
// whole: [ranks, count] = every rank's own.
template <typename T>
void gather_over(comm::Communicator* group, const T* own, T* whole, std::int64_t count) {
  group->all_gather(own, whole, count, dtype_of_v<T>);
}
// Bytes one rank of `ranks` sends in such a reduction of an array of this size: (N-1) arrays for a
// short one, 2 (N-1)/N of a long one.
[[nodiscard]] double sum_sent_bytes(std::int64_t array_bytes, int ranks);

}  // namespace sinew::model
