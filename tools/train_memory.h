// TrainMemory: what a training run will need, looked at before anything is allocated.
//
// Threads: any.
#pragma once

#include <string>

#include "model/trainer.h"

namespace sinew::tools {

// Throws UsageError naming --batch or --model, whichever is the larger part, when the ranks on this
// machine need more for weights, gradients, moments and activations than it has. Counts what
// sched/plan predicts, which is less than the whole: a run that passes may still be too large.
void require_train_memory(const model::TrainPlan& plan);

// What --model takes, for help.
[[nodiscard]] std::string model_help();

}  // namespace sinew::tools
