#include "sched/plan/flops.h"

#include <array>

#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::sched {

namespace {

// The shape as real numbers, in the letters of the formulas.
struct Letters {
  explicit Letters(const ModelShape& shape, std::int64_t time)
      : c(static_cast<double>(shape.channels)),
        l(static_cast<double>(shape.layers)),
        v(static_cast<double>(shape.vocabulary)),
        t(static_cast<double>(time)),
        n(static_cast<double>(parameter_count(shape))) {}
  double c, l, v, t, n;
};

double palm(const ModelShape& shape, std::int64_t time) {
  const Letters x(shape, time);
  return 6 * x.n + 12 * x.l * x.c * x.t;
}

double no_tables(const ModelShape& shape, std::int64_t time) {
  return palm(shape, time) - 6 * static_cast<double>(embedding_parameter_count(shape));
}

double llm_c(const ModelShape& shape, std::int64_t time) {
  const Letters x(shape, time);
  return 6 * x.n + 6 * x.l * x.c * x.t;
}

double by_shapes(const ModelShape& shape, std::int64_t time) {
  const Letters x(shape, time);
  return 3 * (x.l * layer_forward_flops(shape, time) + head_forward_flops(shape));
}

double model_flops(const ModelShape& shape, std::int64_t time) {
  const Letters x(shape, time);
  return 72 * x.l * x.c * x.c * (1 + x.t / (6 * x.c) + x.v / (12 * x.c * x.l));
}

double hardware_flops(const ModelShape& shape, std::int64_t time) {
  const Letters x(shape, time);
  return 96 * x.l * x.c * x.c * (1 + x.t / (6 * x.c) + x.v / (16 * x.c * x.l));
}

constexpr std::array kConventions = {
    FlopsConvention{"palm", "6 N + 12 L C T", "Chowdhery et al. 2022, appendix B; nanoGPT", false,
                    palm},
    FlopsConvention{"no-tables", "6 (N - N_emb) + 12 L C T", "torchtitan", false, no_tables},
    FlopsConvention{"llm.c", "6 N + 6 L C T", "llm.c", false, llm_c},
    FlopsConvention{"shapes", "3 x matrices by shape, causal attention", "Megatron-LM", false,
                    by_shapes},
    FlopsConvention{"model", "72 L C^2 (1 + T/(6C) + V/(12 C L))", "Korthikanti et al., MLSys 2023",
                    false, model_flops},
    FlopsConvention{"hardware", "96 L C^2 (1 + T/(6C) + V/(16 C L))", "Narayanan et al., SC 2021",
                    true, hardware_flops},
};

}  // namespace

const FlopsConvention& find_flops_convention(std::string_view name) {
  std::string names;
  for (const FlopsConvention& convention : kConventions) {
    if (convention.name == name) return convention;
    names += (names.empty() ? "" : ", ") + std::string(convention.name);
  }
  throw UsageError("FLOPs convention '" + std::string(name) + "' is unknown; the conventions are " +
                   names);
}

double layer_forward_flops(const ModelShape& shape, std::int64_t time) {
  const auto c = static_cast<double>(shape.channels);
  const auto kv = static_cast<double>(shape.kv_heads * shape.head_size());
  const double mlp =
      (shape.family == Family::kLlama ? 3 : 2) * c * static_cast<double>(shape.hidden);
  const double matrices = 2 * c * c + 2 * c * kv + mlp;
  // A query meets half of the keys on average; scores and their product with the values cost 2 C
  // each per key.
  const double attention = 2 * 2 * c * static_cast<double>(time) / 2;
  return 2 * matrices + attention;
}

double head_forward_flops(const ModelShape& shape) {
  return 2 * static_cast<double>(shape.channels) * static_cast<double>(shape.vocabulary);
}

double utilisation(const FlopsConvention& convention, const ModelShape& shape, std::int64_t time,
                   const Utilisation& run) {
  CHECK_GT(run.seconds, 0.0);
  CHECK_GT(run.peak_flops, 0.0);
  return convention.per_token(shape, time) * run.tokens / run.seconds / run.peak_flops;
}

}  // namespace sinew::sched
