// Sampling: text from a checkpoint, on one rank. Of its files those of weights and state are read
// and checked; optimizer.safetensors may be gone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/threads.h"
#include "model/checkpoint.h"

namespace sinew::model {

struct SampleOptions {
  std::vector<std::int32_t> prompt;  // at least one token
  std::int64_t tokens = 200;
  double temperature = 1.0;  // 0: the likeliest token
  std::int64_t top_k = 0;    // 0: all
  std::uint64_t seed = 1;
};

// Calls on_token for each sampled token; the same options give the same tokens. Once the context is
// full it slides: all but the newest half is dropped. Throws UsageError for options out of range,
// naming the legal values.
void sample(const Checkpoint& checkpoint, const SampleOptions& options, kernels::Threads threads,
            const std::function<void(std::int32_t)>& on_token);

// Draws from softmax(logits / temperature) over the top_k largest, with `uniform` in [0, 1). Ties
// keep the lower token. temperature 0: the first largest.
[[nodiscard]] std::int32_t pick(const float* logits, std::int64_t count, double temperature,
                                std::int64_t top_k, double uniform);

}  // namespace sinew::model
