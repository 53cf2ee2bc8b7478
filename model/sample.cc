#include "model/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/checkpoint.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/philox.h"

namespace sinew::model {

namespace {

constexpr std::uint32_t kSamplePurpose = 0x5A3913;

void check(const SampleOptions& options, const Config& config) {
  if (options.prompt.empty()) throw UsageError("the prompt is empty; legal: at least one token");
  if (options.tokens < 0)
    throw UsageError(fmt::format("tokens {}; legal values: 0 and more", options.tokens));
  if (!(options.temperature >= 0))
    throw UsageError(fmt::format("temperature {}; legal values: 0 and more", options.temperature));
  if (options.top_k < 0)
    throw UsageError(fmt::format("top_k {}; legal values: 1 and more, 0 for all", options.top_k));
  for (const std::int32_t token : options.prompt) {
    if (token < 0 || token >= config.vocabulary) {
      throw UsageError(
          fmt::format("prompt token {}; legal values: 0 to {}", token, config.vocabulary - 1));
    }
  }
}

}  // namespace

std::int32_t pick(const float* logits, std::int64_t count, double temperature, std::int64_t top_k,
                  double uniform) {
  CHECK_GE(count, 1);
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (temperature == 0) return order.front();
  if (top_k > 0 && top_k < count) order.resize(static_cast<std::size_t>(top_k));
  std::vector<double> weights;
  double total = 0;
  for (const std::int32_t token : order) {
    weights.push_back(
        std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[order.front()])) /
                 temperature));
    total += weights.back();
  }
  double left = uniform * total;
  for (std::size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

void sample(const SampleOptions& options, kernels::Threads threads,
            const std::function<void(std::int32_t)>& on_token) {
  const CheckpointPaths paths = find_checkpoint(options.checkpoint);
  const TrainingState state = read_state(paths);
  const Config& config = state.config;
  check(options, config);
  const auto wanted = static_cast<std::int64_t>(options.prompt.size()) + options.tokens;
  const std::int64_t time = std::min(config.max_time, wanted);
  Memory memory;
  Stage<float> stage(config, {0, config.layers, true, true}, {}, nullptr, {1, time}, 1, 1, threads,
                     memory);
  load_model(paths, state, stage);

  std::vector<std::int32_t> context = options.prompt;
  const std::vector<std::int32_t> no_targets(static_cast<std::size_t>(time), -1);
  const Philox random(options.seed, kSamplePurpose);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (static_cast<std::int64_t>(context.size()) > time) {
      context.erase(context.begin(), context.end() - static_cast<std::ptrdiff_t>(
                                                         std::max<std::int64_t>(1, time / 2)));
    }
    // Positions after the last one cannot reach it: attention is causal.
    std::vector<std::int32_t> tokens = context;
    tokens.resize(static_cast<std::size_t>(time), 0);
    static_cast<void>(
        stage.forward(0, {tokens.data(), no_targets.data()}, 0.0F, Stage<float>::Mode::kEvaluate));
    const float* last =
        stage.logits() + (static_cast<std::int64_t>(context.size()) - 1) * config.vocabulary;
    const std::int32_t token =
        pick(last, config.vocabulary, options.temperature, options.top_k,
             static_cast<double>(random.uniform(static_cast<std::uint64_t>(i))));
    context.push_back(token);
    on_token(token);
  }
}

}  // namespace sinew::model
