#include <array>

#include "sched/base/error.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/algorithms.h"

namespace sinew::sched {

namespace {

bool always_exact(const PipeParams&, const PipeTimes&) { return true; }

constexpr std::array kAlgorithms = {
    PipeAlgorithm{"gpipe", "(p-1)/m", "Huang et al., NeurIPS 2019", gpipe, refuse_chunks,
                  one_f_one_b_bubble, always_exact, gpipe_peak_live},
    PipeAlgorithm{"1f1b", "(p-1)/m", "Narayanan et al., ICML 2021", one_f_one_b, refuse_chunks,
                  one_f_one_b_bubble, always_exact, one_f_one_b_peak_live},
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
