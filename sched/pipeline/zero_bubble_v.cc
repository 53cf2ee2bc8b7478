// ZB-V: split backward, and two chunks per rank in the V placement: stage r and stage 2p-1-r on
// rank r. The loss is on rank 0, beside the first stage, so a microbatch's backward starts where
// its forward did, and memory is as 1F1B's on every rank: 2p half-sized chunks.
//
// Drawn: zb-v p 2 v 2 m 4
//
//   rank 0 |F0F1F2f0b0w0f1b1w1F3B0W0f2b2w2B1W1f3b3w3B2W2B3W3  |
//   rank 1 |  F0f0F1f1b0w0F2B0W0f2b1w1F3B1W1f3b2w2B2b3B3W2w3W3|
//
// In phases, per rank r (what comes in each is what the neighbours have made by then if F = B = W):
//   1. forwards of chunk 0 until the first microbatch has come back     2(p-r)-1 times F
//   2. forwards of both chunks until the first backward                 r times f F
//   3. chunk 1 turns round, chunk 0 waits for its gradients             p-r times f b w
//   4. steady state, each kind once per microbatch                      F B W f b w
//   5. no forwards left; B and b first, because others wait for them    r times B b
//   6. the last gradients of chunk 0                                    p-r times B W
//   7. the weight gradients left over                                   w, then W
//
// Fewer than 2p microbatches run the schedule of 2p with the others left out.
//
// Bubble of a rank's busy time, exact for F <= B, W <= B, and W <= F where p < m < 2p:
//   m <= p   2(p-1)(F+B) - 2(m-1) F
//   m >  p   max(2(p-1)B - 2(min(m, 2p)-p-1) W, (p-1)(B-F)); none for F = B = W, m >= 2p
// and at most 2(p-1) max(F+B, W) elsewhere. Source: Qi et al., Zero bubble pipeline parallelism,
// ICLR 2024, section 6.
#include <algorithm>
#include <array>

#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

namespace {

// Writes one rank's program; counts make each action take the next microbatch of its kind.
class VWriter {
 public:
  VWriter(PipeSchedule& schedule, int rank)
      : schedule_(schedule),
        rank_(rank),
        stages_{rank, 2 * schedule.ranks - 1 - rank},
        whole_(std::max(schedule.microbatches, 2 * schedule.ranks)) {}

  void write() {
    const int p = schedule_.ranks;
    for (int i = 0; i < 2 * (p - rank_) - 1; ++i) forward(0);
    for (int i = 0; i < rank_; ++i) forward(1), forward(0);
    for (int i = 0; i < p - rank_; ++i) forward(1), backward(1), weight(1);
    while (forwards_[1] < whole_) {
      forward(0), backward(0), weight(0);
      forward(1), backward(1), weight(1);
    }
    for (int i = 0; i < rank_; ++i) backward(0), backward(1);
    for (int i = 0; i < p - rank_; ++i) backward(0), weight(0);
    while (weights_[1] < whole_) weight(1);
    while (weights_[0] < whole_) weight(0);
  }

 private:
  void forward(int chunk) { take(PipeVerb::kForward, chunk, forwards_); }
  void backward(int chunk) { take(PipeVerb::kBackward, chunk, backwards_); }
  void weight(int chunk) { take(PipeVerb::kWeight, chunk, weights_); }

  void take(PipeVerb verb, int chunk, std::array<int, 2>& counts) {
    const auto c = static_cast<std::size_t>(chunk);
    if (counts[c] == whole_) return;
    const int microbatch = counts[c]++;
    if (microbatch < schedule_.microbatches) append(schedule_, rank_, verb, stages_[c], microbatch);
  }

  PipeSchedule& schedule_;
  const int rank_;
  const std::array<int, 2> stages_;
  const int whole_;  // microbatches of the schedule that is written
  std::array<int, 2> forwards_ = {0, 0};
  std::array<int, 2> backwards_ = {0, 0};
  std::array<int, 2> weights_ = {0, 0};
};

}  // namespace

PipeSchedule zb_v(const PipeParams& params) {
  PipeSchedule schedule = empty_schedule("zb-v", params, v_placement(params.ranks, 2));
  for (int rank = 0; rank < params.ranks; ++rank) VWriter(schedule, rank).write();
  return schedule;
}

std::string zb_v_refuse(const PipeParams& params) {
  if (params.chunks == 2) return {};
  return "has 2 model chunks per rank, not " + std::to_string(params.chunks);
}

bool zb_v_exact(const PipeParams& params, const PipeTimes& times) {
  const bool between = params.microbatches > params.ranks && params.microbatches < 2 * params.ranks;
  return times.forward <= times.backward && times.weight <= times.backward &&
         (!between || times.weight <= times.forward);
}

double zb_v_bubble(const PipeParams& params, const PipeTimes& times) {
  const double p = params.ranks;
  const double m = params.microbatches;
  const auto [f, b, w, transfer] = times;
  double idle = 2 * (p - 1) * std::max(f + b, w);
  if (zb_v_exact(params, times)) {
    idle = m <= p ? 2 * (p - 1) * (f + b) - 2 * (m - 1) * f
                  : std::max(2 * (p - 1) * b - 2 * (std::min(m, 2 * p) - p - 1) * w,
                             (p - 1) * (b - f));
  }
  return p == 1 ? 0 : idle / (2 * m * (f + b + w));
}

int zb_v_peak_live(const PipeParams& params, int rank) {
  return std::min({2 * params.ranks, 2 * params.microbatches, params.microbatches + 1 + rank});
}

}  // namespace sinew::sched
