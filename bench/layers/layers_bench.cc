// One transformer block and one whole stage, forward and backward, on one rank without
// communication: the layer of the stack between kernels and a training step. Counter "flops" is
// multiplications and additions per second of the matrix products and attention, the kernels' own
// convention.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "model/stage.h"

namespace sinew::bench {
namespace {

using model::BatchShape;
using model::Config;

// Shapes of the demo's model, of a wider one, and of one layer of GPT-2's smallest.
Config config_of(std::int64_t channels) {
  return {.name = "bench",
          .layers = 1,
          .heads = channels / 32,
          .channels = channels,
          .vocabulary = 256,
          .max_time = 256};
}

// Of one layer and one pass forward: four projections of 12 C^2 in all and causal attention of T/2
// keys each.
double block_flops(const Config& config, std::int64_t rows, std::int64_t time) {
  const auto c = static_cast<double>(config.channels);
  return static_cast<double>(rows) *
         (2 * 12 * c * c + 2 * 2 * c * static_cast<double>(time + 1) / 2);
}

// A stage of one block without embedding and head.
struct OneBlock {
  explicit OneBlock(std::int64_t channels)
      : config(config_of(channels)),
        stage(config, model::StageParts::one(config, {0, 1, false, false}), {0, 1}, nullptr, batch,
              {}, {}, memory),
        slot(stage.open(0)) {
    float* weights = stage.weights();
    for (std::int64_t i = 0; i < stage.count(); ++i)
      weights[i] = 0.02F * static_cast<float>((i * 7919) % 17 - 8);
    float* input = stage.input(slot);
    for (std::int64_t i = 0; i < stage.boundary_count(); ++i)
      input[i] = static_cast<float>((i * 104729) % 13 - 6);
    stage.zero_gradients();
  }

  Config config;
  BatchShape batch = {.batch = 4, .time = 256};
  model::Memory memory;
  model::Stage<float> stage;
  int slot;
};

void report(benchmark::State& state, const OneBlock& block, double passes) {
  const double flops =
      passes * block_flops(block.config, block.batch.batch * block.batch.time, block.batch.time);
  state.counters["flops"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate);
}

void block_forward(benchmark::State& state) {
  OneBlock block(state.range(0));
  for (auto unused : state) {
    (void)unused;
    benchmark::DoNotOptimize(
        block.stage.forward(block.slot, {}, 1.0F, model::Stage<float>::Mode::kTrain));
  }
  report(state, block, 1);
}
BENCHMARK(block_forward)->Arg(128)->Arg(256)->Arg(768)->Unit(benchmark::kMillisecond);

void block_forward_backward(benchmark::State& state) {
  OneBlock block(state.range(0));
  for (auto unused : state) {
    (void)unused;
    benchmark::DoNotOptimize(
        block.stage.forward(block.slot, {}, 1.0F, model::Stage<float>::Mode::kTrain));
    std::fill_n(block.stage.output(block.slot), block.stage.boundary_count(), 1e-3F);
    block.stage.backward(block.slot, {}, model::Stage<float>::Weights::kNow);
  }
  // Backward is twice the products of forward.
  report(state, block, 3);
}
BENCHMARK(block_forward_backward)->Arg(128)->Arg(256)->Arg(768)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sinew::bench

BENCHMARK_MAIN();
