// gather: logical tensors from the slices of all ranks, for comparisons and reports (never in a
// step).
#pragma once

#include "model/optimizer.h"
#include "model/parallel.h"
#include "model/stage.h"
#include "model/trainer.h"

namespace sinew::model {

// flat: this rank's flat buffer (weights or gradients), valid in [begin, begin + count).
// Collective; every rank gets every tensor of the model as f64.
template <typename T>
[[nodiscard]] Trainer::Tensors gather(const TrainPlan& plan, const Stage<T>& stage,
                                      Parallel& parallel, const T* flat, std::int64_t begin,
                                      std::int64_t count);

}  // namespace sinew::model
