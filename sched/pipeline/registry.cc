#include <array>

#include "sched/base/error.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

namespace {

bool always_exact(const PipeParams&, const PipeTimes&) { return true; }

constexpr std::array kAlgorithms = {
    PipeAlgorithm{.name = "gpipe",
                  .formula = "(p-1)/m",
                  .source = "Huang et al., NeurIPS 2019",
                  .default_chunks = 1,
                  .generate = gpipe,
                  .refuse = refuse_chunks,
                  .bubble = one_f_one_b_bubble,
                  .exact = always_exact,
                  .peak_live = gpipe_peak_live},
    PipeAlgorithm{.name = "1f1b",
                  .formula = "(p-1)/m",
                  .source = "Narayanan et al., ICML 2021",
                  .default_chunks = 1,
                  .generate = one_f_one_b,
                  .refuse = refuse_chunks,
                  .bubble = one_f_one_b_bubble,
                  .exact = always_exact,
                  .peak_live = one_f_one_b_peak_live},
    PipeAlgorithm{.name = "interleaved",
                  .formula = "(p-1)/(v m) for m >= p",
                  .source = "Narayanan et al., SC 2021",
                  .default_chunks = 2,
                  .generate = interleaved,
                  .refuse = interleaved_refuse,
                  .bubble = interleaved_bubble,
                  .exact = always_exact,
                  .peak_live = interleaved_peak_live},
    PipeAlgorithm{.name = "zb-h1",
                  .formula = "(p-1)(F+B-W) / m(F+B+W) for m >= p, W <= F",
                  .source = "Qi et al., ICLR 2024",
                  .default_chunks = 1,
                  .generate = zb_h1,
                  .refuse = refuse_chunks,
                  .bubble = zb_h1_bubble,
                  .exact = always_exact,
                  .peak_live = zb_h1_peak_live},
    PipeAlgorithm{.name = "zb-h2",
                  .formula = "(p-1)(F+B-2W) / m(F+B+W) for m >= 2p-1, W <= F",
                  .source = "Qi et al., ICLR 2024",
                  .default_chunks = 1,
                  .generate = zb_h2,
                  .refuse = refuse_chunks,
                  .bubble = zb_h2_bubble,
                  .exact = zb_h2_exact,
                  .peak_live = zb_h2_peak_live},
    PipeAlgorithm{.name = "zb-v",
                  .formula = "0 for m >= 2p, F = B = W",
                  .source = "Qi et al., ICLR 2024",
                  .default_chunks = 2,
                  .generate = zb_v,
                  .refuse = zb_v_refuse,
                  .bubble = zb_v_bubble,
                  .exact = zb_v_exact,
                  .peak_live = zb_v_peak_live},
};

// What the 16-bit stage and rank numbers and the 32-bit microbatch number of an action can say.
std::string refuse_sizes(const PipeParams& params) {
  constexpr int kStagesMax = 65535;
  constexpr int kMicrobatchesMax = 1 << 24;
  if (params.ranks < 1) return "has at least 1 rank, not " + std::to_string(params.ranks);
  if (params.chunks < 1)
    return "has at least 1 model chunk per rank, not " + std::to_string(params.chunks);
  if (params.ranks > kStagesMax / params.chunks) {
    return "has at most " + std::to_string(kStagesMax) + " stages, not " +
           std::to_string(params.ranks) + " x " + std::to_string(params.chunks);
  }
  if (params.microbatches < 1 || params.microbatches > kMicrobatchesMax) {
    return "has 1 to " + std::to_string(kMicrobatchesMax) + " microbatches, not " +
           std::to_string(params.microbatches);
  }
  return {};
}

}  // namespace

std::span<const PipeAlgorithm> pipe_algorithms() { return kAlgorithms; }

const PipeAlgorithm& find_pipe_algorithm(std::string_view name) {
  std::string names;
  for (const PipeAlgorithm& algorithm : kAlgorithms) {
    if (algorithm.name == name) return algorithm;
    names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  }
  throw UsageError("pipeline schedule '" + std::string(name) + "' is unknown; the schedules are " +
                   names);
}

PipeSchedule generate(const PipeAlgorithm& algorithm, const PipeParams& params) {
  std::string refusal = refuse_sizes(params);
  if (refusal.empty()) refusal = algorithm.refuse(params);
  if (!refusal.empty()) {
    throw UsageError("pipeline schedule '" + std::string(algorithm.name) + "' " + refusal);
  }
  return insert_messages(algorithm.generate(params));
}

}  // namespace sinew::sched
