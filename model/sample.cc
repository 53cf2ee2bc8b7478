#include "model/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/decoder.h"
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

void sample(const Checkpoint& checkpoint, const SampleOptions& options, kernels::Threads threads,
            const std::function<void(std::int32_t)>& on_token) {
  const Config& config = checkpoint.state.config;
  check(options, config);
  Memory memory;
  Stage<float> stage(config, StageParts::one(config, {0, config.layers, true, true}), {}, nullptr,
                     {1, 1}, {}, threads, memory);
  load_model(checkpoint.paths, checkpoint.state, stage);
  Decoder<float> decoder(config, stage, threads);

  std::vector<std::int32_t> context = options.prompt;
  const Philox random(options.seed, kSamplePurpose);
  std::size_t fed = 0;
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    if (static_cast<std::int64_t>(context.size()) > config.max_time) {
      const auto kept = static_cast<std::ptrdiff_t>(std::max<std::int64_t>(1, config.max_time / 2));
      context.erase(context.begin(), context.end() - kept);
      decoder.clear();
      fed = 0;
    }
    const float* logits = nullptr;
    while (fed < context.size()) logits = decoder.feed(context[fed++]);
    const std::int32_t token =
        pick(logits, config.vocabulary, options.temperature, options.top_k,
             static_cast<double>(random.uniform(static_cast<std::uint64_t>(i))));
    context.push_back(token);
    on_token(token);
  }
}

}  // namespace sinew::model
