// Units: where a rank's weights and gradients lie, whole or cut over data parallelism, and the
// movements that ZeRO makes of them (Rajbhandari et al., SC 2020).
//
// Never does: compute with weights, or know layers and pipelines. Threads: one rank, one thread.
// Collective over the data-parallel ranks: all of them make the same calls in the same order.
//
// Every unit of the flat buffers (layout.h) is cut into as many equal pieces as there are
// data-parallel ranks; a rank owns one of each and keeps optimizer state for it alone (stage 1).
// Under hybrid sharding the ranks of one group share the pieces, every group has them all, and the
// gradients of a piece are summed over the groups once per step, after its group's.
//
//   stage   weights            gradients          in a step, of each unit
//   0       whole              whole              all-reduce
//   1       whole              whole              reduce-scatter, all-gather after the update
//   2       whole              owned pieces       reduce-scatter every microbatch, all-gather
//   3       owned pieces       owned pieces       all-gather before every use, reduce-scatter
//                                                 every microbatch
//
// Under stage 3 a layer's gathered weights may be kept from forward to backward: gathered once and
// not twice a microbatch, or less often, where a pipeline has several microbatches between the two;
// every layer then has a buffer of its own.
//
// All movements are started and waited for as late as can be: under stages 0 and 1 a unit's
// gradients leave as soon as the last microbatch has added to them; under 2 and 3 while the next
// unit is computed; under 3 the next unit's weights come while this one is used. Under 2 and 3 two
// working buffers of the largest unit hold gradients, under 3 two more hold weights (where layers'
// are kept, two of the largest of the ends' units).
//
// Narrow gradients are kept, and summed over ranks, in the weights' type: half the bytes of bf16
// weights. A microbatch's are then found as wide as ever in those two working buffers, under every
// stage, and added with one rounding (where they are cut: rounded, summed over the ranks, added).
//
// The two shares of a tied table, the embedding's and the head's, are kept apart until finish(),
// also where both are on this rank: then every pipeline adds them in the same order. Its unit is
// reduced there.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kernels/element.h"
#include "kernels/threads.h"
#include "model/arena.h"
#include "model/layout.h"
#include "sched/base/check.h"
#include "sched/plan/memory.h"

namespace sinew::model {

// How data parallelism cuts. Without a communicator nothing is cut.
struct Sharding {
  sched::Zero zero = sched::Zero::kNone;
  comm::Communicator* data = nullptr;    // under hybrid sharding the ranks of one group
  comm::Communicator* groups = nullptr;  // one rank of each: those with the same pieces
  bool narrow_gradients = false;         // of weights narrower than their sums: kept like them
  bool keeps_gathered = false;           // with stage 3: layers' weights, from forward to backward
  std::string fault{};  // of tests: the parameter whose gradient this rank finds twice as large
  [[nodiscard]] int ranks() const { return data == nullptr ? 1 : data->world(); }
  [[nodiscard]] int rank() const { return data == nullptr ? 0 : data->rank(); }
  // What units must be a multiple of.
  [[nodiscard]] std::int64_t multiple() const { return zero == sched::Zero::kNone ? 1 : ranks(); }
  [[nodiscard]] bool cuts_gradients() const {
    return zero >= sched::Zero::kGradients && data != nullptr;
  }
  // Whether a microbatch's gradients of a unit are found in a working buffer.
  [[nodiscard]] bool uses_working() const { return cuts_gradients() || narrow_gradients; }
  [[nodiscard]] bool cuts_weights() const {
    return zero >= sched::Zero::kParameters && data != nullptr;
  }
};

// Elements [flat_begin, + count) of the flat layout, and where they begin in each array.
struct Piece {
  std::int64_t flat_begin = 0;
  std::int64_t count = 0;
  std::int64_t weight_begin = 0;
  std::int64_t gradient_begin = 0;
  std::int64_t state_begin = 0;  // in the optimizer's
  // The part of it in [begin, end) of the flat layout; count <= 0 when there is none.
  [[nodiscard]] Piece within(std::int64_t begin, std::int64_t end) const;
};

// T is float, double or bf16; gradients are Wide<T>, or T where they are narrow.
template <typename T>
class Units {
 public:
  using W = kernels::Wide<T>;

  // flat: made for sharding.multiple().
  Units(FlatLayout flat, const Sharding& sharding, kernels::Threads threads, Arena& weights,
        Arena& gradients, Arena& working);

  [[nodiscard]] const FlatLayout& flat() const { return flat_; }
  // Held between steps: whole, or cut over data parallelism.
  [[nodiscard]] T* weights() { return weights_; }
  [[nodiscard]] const T* weights() const { return weights_; }
  // Not of narrow gradients, which only with_gradients() shows.
  [[nodiscard]] W* gradients() {
    CHECK(!sharding_.narrow_gradients);
    return gradients_;
  }
  [[nodiscard]] const W* gradients() const {
    CHECK(!sharding_.narrow_gradients);
    return gradients_;
  }
  // body(gradients) with their array as it is held: W*, or T* where they are narrow.
  template <typename Body>
  decltype(auto) with_gradients(Body&& body) const {
    return sharding_.narrow_gradients ? body(narrow_) : body(gradients_);
  }
  // Of each unit what this rank updates; what weights() holds.
  [[nodiscard]] const std::vector<Piece>& owned() const { return owned_; }
  [[nodiscard]] const std::vector<Piece>& held() const { return held_; }

  // A unit's weights, whole, until release() or keep().
  [[nodiscard]] const T* use(std::size_t unit);
  void release(std::size_t unit);
  // Of a layer after a forward whose backward will use it again, and release it.
  void keep(std::size_t unit);
  // Starts to fetch what will be used next, if there is room.
  void prefetch(std::size_t unit);
  // After the update of the owned pieces: every rank's weights are new.
  void share_weights();

  // A step begins: no gradients yet.
  void zero_gradients();
  // Where a microbatch's gradients of the unit are added to: the whole unit's.
  [[nodiscard]] W* gradient(std::size_t unit);
  // A microbatch has added all it has; `last`: of the step.
  void gradient_done(std::size_t unit, bool last);
  // The head's share of the tied table (the unit's index is taken for its size) where the
  // embedding's is on this rank, too.
  [[nodiscard]] W* head_gradient(std::size_t unit);
  void head_gradient_done(std::size_t unit);
  // A step ends: tied shares are added (over `tie` when they lie on two ranks; null otherwise), and
  // afterwards gradients() hold the sums over the whole batch; under stage 1 in the owned pieces
  // only.
  void finish(comm::Communicator* tie);
  // Moves what is on its way while the rank computes.
  void progress();

  // [parameters of the flat layout] whether a gradient was not finite before data parallelism
  // summed it: sums spread it to all ranks.
  // On a device: once it is idle.
  [[nodiscard]] std::vector<bool> bad() const;
  // On a device, before the first step: where it notes them, one word for each parameter.
  void watch(std::span<std::uint64_t> not_finite) { not_finite_ = not_finite; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // A working buffer; unit kNone: free.
  template <typename E>
  struct Buffer {
    E* data = nullptr;
    std::size_t unit = kNone;
    bool head = false;
    bool busy = false;         // weights: in use; gradients: being scattered
    std::size_t only = kNone;  // weights: the layer that it is for; kNone: any other unit
    std::int64_t kept = 0;     // weights: forwards whose backwards are to come
    comm::Request request{};
  };

  void gather(Buffer<T>& buffer, std::size_t unit);
  void allocate_gathered(Arena& working);
  [[nodiscard]] Buffer<T>* find_gathered(std::size_t unit);
  [[nodiscard]] Buffer<T>* find_free(std::size_t unit);
  [[nodiscard]] Buffer<W>& gradient_buffer(std::size_t unit, bool head);
  void scatter(Buffer<W>& buffer);
  void absorb(Buffer<W>& buffer);
  void deliver(Buffer<W>& buffer);
  void double_faulty(std::size_t unit, bool last);
  void collect_oldest();
  void start_reduction(std::size_t unit);
  void wait_for_reductions();
  void sum_over_groups();
  template <typename E>
  void note_bad(std::size_t unit, const E* gradients);
  void note_bad_on_device(const Unit& unit, const float* gradients);
  [[nodiscard]] bool has_head_share() const {
    return head_share_ != nullptr || narrow_head_share_ != nullptr;
  }
  [[nodiscard]] bool is_tied(std::size_t unit) const;

  FlatLayout flat_;
  Sharding sharding_;
  kernels::Threads threads_;
  std::vector<Piece> owned_;
  std::vector<Piece> held_;
  T* weights_ = nullptr;
  W* gradients_ = nullptr;
  T* narrow_ = nullptr;      // instead
  W* head_share_ = nullptr;  // as gradients_ holds its unit
  T* narrow_head_share_ = nullptr;
  std::vector<Buffer<T>> gathered_;
  std::vector<Buffer<W>> working_;
  std::deque<std::size_t> scattering_;  // of working_, oldest first
  std::vector<bool> started_;           // [units] stages 0 and 1: on its way or done
  std::vector<comm::Request> reductions_;
  std::vector<bool> bad_;
  std::span<std::uint64_t> not_finite_;  // instead, on a device
};

}  // namespace sinew::model
