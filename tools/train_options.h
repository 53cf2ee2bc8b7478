// Options bound to model::TrainOptions: one line per field.
//
// Threads: one thread.
#pragma once

#include "model/trainer.h"
#include "tools/args.h"

namespace sinew::tools {

// Of a run's shape, which `sinew plan` asks for, too.
void bind_shape_options(Args& args, model::TrainOptions& options);
// All of `sinew train`.
void bind_train_options(Args& args, model::TrainOptions& options);

}  // namespace sinew::tools
