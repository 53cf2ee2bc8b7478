#include "sched/plan/memory.h"

#include <algorithm>
#include <array>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"

namespace sinew::sched {

namespace {
constexpr std::array<std::string_view, 3> kRecomputeNames = {"none", "selective", "full"};
}

Zero parse_zero(std::int64_t stage) {
  if (stage < 0 || stage > 3) {
    throw UsageError("zero " + std::to_string(stage) +
                     " is not a stage; the stages are 0, 1, 2, 3");
  }
  return static_cast<Zero>(stage);
}

StaticBytes static_bytes(std::int64_t count, Zero zero, const Precision& precision,
                         std::int64_t ranks, std::int64_t index) {
  CHECK_GE(count, 0);
  CHECK_LT(index, ranks);
  const std::int64_t shard = partition(count, ranks, index).count;
  const auto held = [&](Zero cut_from) { return zero >= cut_from ? shard : count; };
  return {held(Zero::kParameters) * precision.parameter,
          held(Zero::kGradients) * precision.gradient,
          held(Zero::kOptimizer) * precision.optimizer};
}

std::int64_t gathered_bytes(Zero zero, std::int64_t largest_unit, int prefetch,
                            const Precision& precision) {
  const int gradients = zero >= Zero::kGradients ? 2 : 0;
  const int parameters = zero >= Zero::kParameters ? prefetch + 1 : 0;
  return largest_unit * (parameters * precision.parameter + gradients * precision.gradient);
}

std::int64_t kept_bytes(std::int64_t layers, std::int64_t largest_end, const Precision& precision) {
  return (layers + 2 * largest_end) * precision.parameter;
}

Recompute parse_recompute(std::string_view name) {
  for (std::size_t i = 0; i < kRecomputeNames.size(); ++i) {
    if (kRecomputeNames[i] == name) return static_cast<Recompute>(i);
  }
  throw UsageError("recompute '" + std::string(name) +
                   "' is unknown; it is none, selective or full");
}

std::string_view name_of(Recompute recompute) {
  return kRecomputeNames[static_cast<std::size_t>(recompute)];
}

double paper_activation_bytes(const ModelShape& model, const ActivationShape& shape) {
  const double tp = shape.tp;
  const double whole =
      shape.sequence_parallel ? tp : 1;  // what divides the parts outside the sharded matrices
  const auto time = static_cast<double>(shape.time);
  const double row = time * static_cast<double>(shape.batch) * static_cast<double>(model.channels);
  const double scores =
      5 * static_cast<double>(model.heads) * time / (static_cast<double>(model.channels) * tp);
  switch (shape.recompute) {
    case Recompute::kNone:
      return row * (10 / whole + 24 / tp + scores);
    case Recompute::kSelective:
      return row * (10 / whole + 24 / tp);
    case Recompute::kFull:
      return row * 2 / whole;
  }
  __builtin_unreachable();
}

std::int64_t saved_bytes(std::span<const SavedTensor> tensors) {
  std::int64_t bytes = 0;
  for (const SavedTensor& tensor : tensors) bytes += tensor.elements * tensor.element_bytes;
  return bytes;
}

std::vector<SavedTensor> layer_saved_tensors(const ModelShape& model, const ActivationShape& shape,
                                             const Precision& precision) {
  CHECK_EQ(model.heads % shape.tp, 0);
  CHECK_EQ(model.hidden % shape.tp, 0);
  const std::int64_t rows = shape.batch * shape.time;
  const std::int64_t whole_rows = shape.sequence_parallel ? rows / shape.tp : rows;
  const std::int64_t heads = model.heads / shape.tp;
  const std::int64_t kv_heads = std::max<std::int64_t>(model.kv_heads / shape.tp, 1);
  const std::int64_t hidden = model.hidden / shape.tp;
  const bool llama = model.family == Family::kLlama;
  const std::int64_t statistics = llama ? 1 : 2;  // of a norm: deviation, and mean where it has one

  std::vector<SavedTensor> tensors;
  const auto whole = [&](std::string name, std::int64_t per_row) {
    tensors.push_back({std::move(name), whole_rows * per_row, precision.parameter});
  };
  const auto sharded = [&](std::string name, std::int64_t per_row) {
    tensors.push_back({std::move(name), rows * per_row, precision.parameter});
  };
  whole("input", model.channels);
  if (shape.recompute == Recompute::kFull) return tensors;
  const bool keeps_all = shape.recompute == Recompute::kNone;
  if (keeps_all) whole("norm 1", model.channels);
  tensors.push_back({"norm 1 statistics", whole_rows * statistics, precision.statistic()});
  sharded("qkv", (heads + 2 * kv_heads) * model.head_size());
  sharded("attention", heads * model.head_size());
  tensors.push_back({"attention log-sum", rows * heads, precision.statistic()});
  whole("middle", model.channels);
  if (keeps_all) whole("norm 2", model.channels);
  tensors.push_back({"norm 2 statistics", whole_rows * statistics, precision.statistic()});
  if (llama) sharded("gate", hidden);
  sharded("up", hidden);
  if (keeps_all) sharded("activated", hidden);
  return tensors;
}

}  // namespace sinew::sched
