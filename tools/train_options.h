// The options of `sinew train` bound to model::TrainOptions: one line per field.
//
// Threads: one thread.
#pragma once

#include "model/trainer.h"
#include "tools/args.h"

namespace sinew::tools {

void bind_train_options(Args& args, model::TrainOptions& options);

}  // namespace sinew::tools
