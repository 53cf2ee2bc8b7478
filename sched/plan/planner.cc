#include "sched/plan/planner.h"

#include <algorithm>
#include <tuple>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/pipeline/simulate.h"
#include "sched/plan/flops.h"

namespace sinew::sched {

namespace {

// Beyond this many computations a pipeline is timed by its closed form, which the tests hold
// against the simulation.
// At this size a simulation takes about 2 ms, so that thousands of layouts are ranked in seconds.
constexpr std::int64_t kSimulatedMost = 4096;

bool is_simulated(const RunShape& run) {
  return std::int64_t{run.sizes.pp} * run.chunks * run.microbatches <= kSimulatedMost;
}

// Messages are what a simulation alone needs.
PipeSchedule schedule_of(const RunShape& run) {
  const PipeAlgorithm& algorithm = find_pipe_algorithm(run.schedule);
  return is_simulated(run) ? generate(algorithm, pipe_params(run))
                           : algorithm.generate(pipe_params(run));
}

// Seconds that one rank spends, split as the model of a step needs them.
struct RankTimes {
  double forward = 0;   // of one microbatch on one stage, calls included
  double backward = 0;  // of the input gradient
  double weight = 0;
  double transfer = 0;
  double step = 0;     // once per step
  double compute = 0;  // of a whole step, without calls
  std::array<double, 4> axis = {0, 0, 0, 0};
  double sent_bytes = 0;
};

// Layers on the rank whose forward is computed again.
double recomputed_layers(const RunShape& run, const PipeSchedule& schedule, int pp_rank) {
  const std::vector<Recompute> kinds = run.recompute_kinds();
  double layers = 0;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (schedule.rank_of(stage) != pp_rank) continue;
    const Part part = partition(std::ssize(kinds), schedule.stages(), stage);
    const auto first = kinds.begin() + part.offset;
    layers += static_cast<double>(std::count(first, first + part.count, Recompute::kFull));
  }
  return layers;
}

RankTimes times_of(const RunShape& run, const PipeSchedule& schedule, const Machine& machine,
                   int pp_rank) {
  const ModelPart part = part_of(run, schedule, pp_rank, 0);
  const double stages = run.chunks;
  const double microbatches = run.microbatches;
  const double tokens = static_cast<double>(run.microbatch_size() * run.time) / run.sizes.cp;
  double flops = static_cast<double>(part.layers) * layer_forward_flops(run.model, run.time);
  if (part.has_head) flops += head_forward_flops(run.model);
  // Forward of a microbatch over all stages of the rank; both gradients cost as much each.
  const double forward = flops * tokens / run.sizes.tp / machine.flops;

  RankTimes times;
  times.forward = forward / stages;
  times.backward = times.forward;
  times.weight = times.forward;
  times.backward += recomputed_layers(run, schedule, pp_rank) *
                    layer_forward_flops(run.model, run.time) * tokens / run.sizes.tp /
                    machine.flops / stages;
  times.compute = microbatches * stages * (times.forward + times.backward + times.weight);
  for (const Traffic& traffic : traffic_of(run, schedule, pp_rank, 0)) {
    const LinkCost& link = machine.link(traffic.axis);
    const double seconds = call_seconds(traffic, link) * static_cast<double>(traffic.calls);
    times.axis[static_cast<std::size_t>(traffic.axis)] += seconds;
    times.sent_bytes += traffic.sent_bytes();
    if (traffic.pattern == Pattern::kMessage && traffic.axis == Axis::kPp) {
      times.transfer = call_seconds(traffic, link);
    } else if (traffic.phase == Phase::kStep) {
      times.step += seconds;
    } else {
      (traffic.phase == Phase::kForward ? times.forward : times.backward) +=
          seconds / (microbatches * stages);
    }
  }
  return times;
}

struct Pipelined {
  double makespan = 0;
  double bubble = 0;
};

Pipelined pipelined(const RunShape& run, const PipeSchedule& schedule,
                    const std::vector<RankTimes>& ranks) {
  std::vector<PipeTimes> stages;
  PipeTimes slowest = {0, 0, 0, 0};
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const RankTimes& rank = ranks[static_cast<std::size_t>(schedule.rank_of(stage))];
    stages.push_back({rank.forward, rank.backward, rank.weight, rank.transfer});
    const auto whole = [](const PipeTimes& t) { return t.forward + t.backward + t.weight; };
    if (whole(stages.back()) > whole(slowest)) slowest = stages.back();
  }
  if (is_simulated(run)) {
    const PipeSimulation simulation = simulate(schedule, stages);
    return {simulation.makespan, simulation.makespan_bubble};
  }
  const double bubble = find_pipe_algorithm(run.schedule).bubble(pipe_params(run), slowest);
  const double ideal = static_cast<double>(run.microbatches) * run.chunks *
                       (slowest.forward + slowest.backward + slowest.weight);
  return {ideal * (1 + bubble), bubble};
}

// The rank that needs most, over pipeline ranks; tensor rank 0 has the larger part of every uneven
// cut.
void predict_memory(const RunShape& run, const PipeSchedule& schedule, Prediction& prediction) {
  for (int rank = 0; rank < run.sizes.pp; ++rank) {
    const ModelPart part = part_of(run, schedule, rank, 0);
    Prediction of_rank;
    const UnitSizes units = unit_sizes(run, part);
    of_rank.static_bytes = static_bytes(units.total, run.zero, run.precision, run.shards(), 0);
    of_rank.activation_bytes = activation_bytes(run, schedule, rank);
    of_rank.working_bytes = working_bytes(run, units);
    if (rank > 0 && of_rank.memory_bytes() <= prediction.memory_bytes()) continue;
    prediction.static_bytes = of_rank.static_bytes;
    prediction.activation_bytes = of_rank.activation_bytes;
    prediction.working_bytes = of_rank.working_bytes;
  }
}

double optimizer_seconds(const RunShape& run, const Machine& machine, const StaticBytes& bytes) {
  // Reads gradients and state, writes state and parameters.
  const double shard = run.zero >= Zero::kOptimizer ? run.shards() : 1;
  const double touched =
      2.0 * static_cast<double>(bytes.optimizer) +
      (static_cast<double>(bytes.gradients) / (run.zero >= Zero::kGradients ? 1 : shard)) +
      (2.0 * static_cast<double>(bytes.parameters) / (run.zero >= Zero::kParameters ? 1 : shard));
  return machine.memory_per_s > 0 ? touched / machine.memory_per_s : 0;
}

Prediction predict(const RunShape& run, const Machine& machine, const PipeSchedule& schedule) {
  Prediction prediction;
  prediction.axis_s.fill(0);
  predict_memory(run, schedule, prediction);

  std::vector<RankTimes> ranks;
  double once = 0;
  double work = 0;
  for (int rank = 0; rank < run.sizes.pp; ++rank) {
    ranks.push_back(times_of(run, schedule, machine, rank));
    once = std::max(once, ranks.back().step);
    work += ranks.back().compute;
    prediction.compute_s = std::max(prediction.compute_s, ranks.back().compute);
    prediction.sent_bytes = std::max(prediction.sent_bytes, ranks.back().sent_bytes);
    for (std::size_t axis = 0; axis < prediction.axis_s.size(); ++axis) {
      prediction.axis_s[axis] = std::max(prediction.axis_s[axis], ranks.back().axis[axis]);
    }
  }
  const Pipelined pipeline = pipelined(run, schedule, ranks);
  prediction.bubble = pipeline.bubble;
  double microbatches_s = pipeline.makespan;
  if (machine.cores > 0) {
    // `work` is one rank of each pipeline stage; as many more as tp x cp x dp do the same beside
    // it.
    const int alike = run.world() / run.sizes.pp;
    const double all_work = work * alike;
    microbatches_s = std::max(microbatches_s, all_work / std::min(machine.cores, run.world()));
  }
  prediction.step_s =
      microbatches_s + once + optimizer_seconds(run, machine, prediction.static_bytes);
  return prediction;
}

void add_plans(const PlanRequest& request, const Machine& machine, const PerAxis& sizes,
               std::vector<Plan>& all) {
  RunShape run = request.run;
  run.sizes = sizes;
  run.sequence_parallel = run.sequence_parallel && sizes.tp > 1;
  if (run.batch % sizes.dp != 0) return;
  const std::int64_t replica = run.batch / sizes.dp;
  for (const PipeAlgorithm& algorithm : pipe_algorithms()) {
    if (sizes.pp == 1 && algorithm.name != "1f1b") continue;
    std::vector<int> chunk_counts = {algorithm.default_chunks};
    if (algorithm.name == "interleaved") chunk_counts = request.interleaved_chunks;
    for (const int chunks : chunk_counts) {
      for (std::int64_t microbatches = 1; microbatches <= replica; ++microbatches) {
        if (replica % microbatches != 0) continue;
        run.schedule = algorithm.name;
        run.chunks = chunks;
        run.microbatches = static_cast<int>(microbatches);
        run.zero = Zero::kNone;
        if (!refuse(run).empty()) continue;
        const PipeSchedule schedule = schedule_of(run);
        for (const Zero zero : request.zeros) {
          if (zero != Zero::kNone && run.replicas() == 1) continue;
          run.zero = zero;
          if (!refuse(run).empty()) continue;
          Plan plan = {run, predict(run, machine, schedule), true};
          plan.fits =
              machine.memory_bytes == 0 || plan.prediction.memory_bytes() <= machine.memory_bytes;
          all.push_back(std::move(plan));
        }
      }
    }
  }
}

}  // namespace

double call_seconds(const Traffic& traffic, const LinkCost& link) {
  const double bytes = static_cast<double>(traffic.elements) * traffic.element_bytes;
  const double once =
      (traffic.ranks - 1) * (link.latency_s + bytes / traffic.ranks * link.seconds_per_byte);
  switch (traffic.pattern) {
    case Pattern::kAllReduce:
      return 2 * once;
    case Pattern::kReduceScatter:
    case Pattern::kAllGather:
      return once;
    case Pattern::kMessage:
      return link.latency_s + bytes * link.seconds_per_byte;
  }
  __builtin_unreachable();
}

Prediction predict(const RunShape& run, const Machine& machine) {
  return predict(run, machine, schedule_of(run));
}

std::vector<Plan> plans(const PlanRequest& request, const Machine& machine) {
  CHECK_GE(request.world, 1);
  std::vector<Plan> all;
  for (int tp = 1; tp <= request.world; ++tp) {
    if (request.world % tp != 0) continue;
    for (int cp = 1; cp <= std::min(request.cp_max, request.world / tp); ++cp) {
      if (request.world / tp % cp != 0) continue;
      for (int pp = 1; pp <= request.world / tp / cp; ++pp) {
        if (request.world / tp / cp % pp != 0) continue;
        add_plans(request, machine, {tp, cp, pp, request.world / tp / cp / pp}, all);
      }
    }
  }
  if (all.empty()) {
    RunShape plainest = request.run;
    plainest.sizes = {1, 1, 1, request.world};
    plainest.schedule = "1f1b";
    plainest.chunks = 1;
    plainest.microbatches = 1;
    throw UsageError("no layout of " + std::to_string(request.world) +
                     " ranks is legal; the plainest is not because " + refuse(plainest));
  }
  std::stable_sort(all.begin(), all.end(), [](const Plan& a, const Plan& b) {
    const auto key = [](const Plan& plan) {
      return std::tuple(!plan.fits, plan.prediction.step_s, plan.prediction.memory_bytes());
    };
    return key(a) < key(b);
  });
  return all;
}

}  // namespace sinew::sched
