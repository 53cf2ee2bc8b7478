#include "sched/plan/model_shape.h"

#include <array>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"

namespace sinew::sched {

namespace {

std::int64_t share(std::int64_t count, int parts, int index) {
  return partition(count, parts, index).count;
}

void require_positive(const ModelShape& shape, std::int64_t value, std::string_view what) {
  if (value >= 1) return;
  throw UsageError("model '" + shape.name + "': " + std::string(what) + " " +
                   std::to_string(value) + " is not a size; it is at least 1");
}

void require_divides(const ModelShape& shape, std::int64_t divisor, std::int64_t value,
                     std::string_view rule) {
  if (value % divisor == 0) return;
  throw UsageError("model '" + shape.name + "': " + std::string(rule) + ", and " +
                   std::to_string(divisor) + " does not divide " + std::to_string(value));
}

}  // namespace

ModelShape gpt2_shape(std::string name, std::int64_t layers, std::int64_t heads,
                      std::int64_t channels, std::int64_t vocabulary, std::int64_t positions) {
  return {std::move(name), Family::kGpt2, layers,     heads,     heads,
          channels,        4 * channels,  vocabulary, positions, true};
}

std::span<const ModelShape> gpt2_shapes() {
  static const std::array kShapes = {
      gpt2_shape("gpt2", 12, 12, 768), gpt2_shape("gpt2-medium", 24, 16, 1024),
      gpt2_shape("gpt2-large", 36, 20, 1280), gpt2_shape("gpt2-xl", 48, 25, 1600)};
  return kShapes;
}

void validate(const ModelShape& shape) {
  require_positive(shape, shape.layers, "layers");
  require_positive(shape, shape.heads, "heads");
  require_positive(shape, shape.kv_heads, "key/value heads");
  require_positive(shape, shape.channels, "channels");
  require_positive(shape, shape.hidden, "hidden units");
  require_positive(shape, shape.vocabulary, "vocabulary");
  require_positive(shape, shape.positions, "positions");
  require_divides(shape, shape.heads, shape.channels, "heads divide channels");
  require_divides(shape, shape.kv_heads, shape.heads, "key/value heads divide heads");
  if (shape.family != Family::kGpt2) return;
  if (shape.kv_heads != shape.heads || shape.hidden != 4 * shape.channels) {
    throw UsageError("model '" + shape.name +
                     "': GPT-2 has as many key/value heads as heads and 4 x channels hidden " +
                     "units, not " + std::to_string(shape.kv_heads) + " and " +
                     std::to_string(shape.hidden));
  }
}

ModelPart whole(const ModelShape& shape) { return {shape.layers, true, true, 1, 0}; }

ModelPart part_of(const ModelShape& shape, std::span<const std::uint16_t> placement, int rank,
                  int tp, int tp_rank) {
  ModelPart part;
  part.tp = tp;
  part.tp_rank = tp_rank;
  const auto stages = static_cast<std::int64_t>(placement.size());
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    if (placement[static_cast<std::size_t>(stage)] != rank) continue;
    part.layers += partition(shape.layers, stages, stage).count;
    part.has_embedding = part.has_embedding || stage == 0;
    part.has_head = part.has_head || stage + 1 == stages;
  }
  return part;
}

// Column-parallel matrices are cut with their biases, row-parallel ones leave bias and norms whole
// on every rank.
std::int64_t layer_parameter_count(const ModelShape& shape, int tp, int tp_rank) {
  CHECK_LT(tp_rank, tp);
  const std::int64_t c = shape.channels;
  const std::int64_t query = share(shape.heads, tp, tp_rank) * shape.head_size();
  // Fewer key/value heads than ranks: every rank holds a copy of the one its queries use.
  const std::int64_t kv_heads = shape.kv_heads >= tp ? share(shape.kv_heads, tp, tp_rank) : 1;
  const std::int64_t key_and_value = 2 * kv_heads * shape.head_size();
  const std::int64_t hidden = share(shape.hidden, tp, tp_rank);
  const std::int64_t attention = c * (query + key_and_value) + query * c;
  if (shape.family == Family::kLlama) return attention + 3 * c * hidden + 2 * c;
  const std::int64_t biases = query + key_and_value + c + hidden + c;
  return attention + 2 * c * hidden + biases + 4 * c;
}

std::int64_t embedding_parameter_count(const ModelShape& shape) {
  return (shape.vocabulary + (shape.family == Family::kGpt2 ? shape.positions : 0)) *
         shape.channels;
}

std::int64_t parameter_count(const ModelShape& shape, const ModelPart& part) {
  const std::int64_t c = shape.channels;
  const std::int64_t table = share(shape.vocabulary, part.tp, part.tp_rank) * c;
  std::int64_t count = part.layers * layer_parameter_count(shape, part.tp, part.tp_rank);
  if (part.has_embedding)
    count += table + (shape.family == Family::kGpt2 ? shape.positions * c : 0);
  if (part.has_head) {
    count += shape.family == Family::kGpt2 ? 2 * c : c;
    if (!shape.tied || !part.has_embedding) count += table;
  }
  return count;
}

std::int64_t parameter_count(const ModelShape& shape) {
  return parameter_count(shape, whole(shape));
}

}  // namespace sinew::sched
