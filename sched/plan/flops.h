// Floating-point operations of training, by each convention in use. Utilisation means nothing
// without the name of the convention that counted the operations.
//
// Never does: measure time. Threads: pure functions.
//
// A multiply-add counts as 2. N: parameters; N_emb: token and position tables; T: the sequence that
// is trained, not the longest one; other symbols as in model_shape.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "sched/plan/model_shape.h"

namespace sinew::sched {

// What to count, per token of the global batch, forward and backward (backward = 2 forward).
struct FlopsConvention {
  std::string_view name;
  std::string_view formula;
  std::string_view source;
  bool counts_recompute;  // hardware utilisation (HFU) rather than the model's (MFU)
  double (*per_token)(const ModelShape& shape, std::int64_t time);
};

//   palm       6 N + 12 L C T
//   no-tables  6 (N - N_emb) + 12 L C T
//   llm.c      6 N + 6 L C T: attention causal, half of the scores
//   shapes     3 x the forward of every matrix by its shape, attention causal, K < H counted
//   model      72 L C^2 (1 + T/(6C) + V/(12 C L))
//   hardware   96 L C^2 (1 + T/(6C) + V/(16 C L)), full recomputation
// Throws UsageError naming the legal names.
[[nodiscard]] const FlopsConvention& find_flops_convention(std::string_view name);

// The forward of one layer for one token, attention counted causally: 2 x its matrices + 2 C T.
[[nodiscard]] double layer_forward_flops(const ModelShape& shape, std::int64_t time);
// The head's: 2 C V.
[[nodiscard]] double head_forward_flops(const ModelShape& shape);

// Operations per second actually achieved over the peak of all devices together. `tokens` counts
// the global batch.
struct Utilisation {
  double tokens = 0;
  double seconds = 0;
  double peak_flops = 0;  // per second, of all devices, dense, in the precision used
};
[[nodiscard]] double utilisation(const FlopsConvention& convention, const ModelShape& shape,
                                 std::int64_t time, const Utilisation& run);

}  // namespace sinew::sched
