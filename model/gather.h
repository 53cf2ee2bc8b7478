// gather: logical tensors from the slices of all ranks, for comparisons and reports (never in a
// step).
#pragma once

#include "model/optimizer.h"
#include "model/parallel.h"
#include "model/stage.h"
#include "model/trainer.h"

namespace sinew::model {

enum class Array : std::uint8_t { kWeights, kGradients };
// Collective; every rank gets every tensor of the model as f64. Of bf16 weights their masters. An
// element of which ranks that hold copies hold different ones is NaN.
template <typename T>
[[nodiscard]] Trainer::Tensors gather(const Config& config, const Stage<T>& stage,
                                      const Optimizer<T>& optimizer, Parallel& parallel,
                                      Array array);

}  // namespace sinew::model
