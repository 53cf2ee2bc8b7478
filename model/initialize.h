// initialize_weights: the weights a run starts from.
#pragma once

#include <cstdint>

#include "kernels/threads.h"
#include "model/optimizer.h"
#include "model/stage.h"

namespace sinew::model {

// value = f(seed, tensor, logical index) by a counter-based generator, so that every layout starts
// from the same model, tied copies included. GPT-2's deviations (layout.cc); biases 0, norms 1.
template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage, kernels::Threads threads = {});
// And the masters of bf16 weights, which are those of an f32 run.
template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage, Optimizer<T>& optimizer,
                        kernels::Threads threads = {});

}  // namespace sinew::model
