#include "tools/train_memory.h"

#include <fmt/format.h>

#include "model/config.h"
#include "sched/plan/memory.h"
#include "tools/launcher.h"
#include "tools/machine.h"

namespace sinew::tools {
namespace {

struct Needed {
  double states = 0;
  double activations = 0;
};

// Of all ranks. Activations grow with the sequences of a microbatch: those of one sequence are
// counted in whole numbers, which those of a thousand million would leave.
Needed needed_by(const model::TrainPlan& plan) {
  sched::RunShape one = plan.run;
  one.batch = std::int64_t{plan.run.sizes.dp} * plan.run.microbatches;
  Needed needed;
  for (int stage = 0; stage < plan.run.sizes.pp; ++stage) {
    const sched::ModelPart part = sched::part_of(plan.run, plan.schedule, stage, 0);
    needed.states += static_cast<double>(
        sched::static_bytes(sched::parameter_count(plan.run.model, part), plan.run.zero,
                            plan.run.precision, plan.run.shards(), 0)
            .total());
    needed.activations += static_cast<double>(sched::activation_bytes(one, plan.schedule, stage)) *
                          static_cast<double>(plan.microbatch.batch);
  }
  const double others = static_cast<double>(plan.grid.world()) / plan.run.sizes.pp;
  return {needed.states * others, needed.activations * others};
}

}  // namespace

void require_train_memory(const model::TrainPlan& plan) {
  const Needed needed = needed_by(plan);
  const Launcher launcher = launcher_of_environment();
  const double here = static_cast<double>(launcher.local) / launcher.world;
  const std::string what = needed.activations > needed.states
                               ? fmt::format("--batch {}", plan.options.batch)
                               : fmt::format("--model {}", plan.options.model);
  require_memory(describe_machine(), what, (needed.states + needed.activations) * here);
}

std::string model_help() {
  std::string names;
  for (const model::Config& config : model::named_configs()) names += config.name + ", ";
  return names + "or the path of a .json file";
}

}  // namespace sinew::tools
