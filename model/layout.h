// Layout: how one logical parameter lies on the ranks. Every rule that must know it is derived from
// here: which gradients are summed over whom, what counts once in the norm, which slice a
// checkpoint reads and writes.
//
// Never does: hold or move numbers. Threads: plain values.
//
// Terms
//   logical tensor  the parameter as one rank alone would hold it, row-major
//   slice           the part a tensor-parallel rank holds: the logical tensor read as [outer,
//   parts, size, inner]
//                   and cut along `size` to [begin, end). parts > 1 is the fused QKV matrix: each
//                   of its three thirds is cut by heads, never the whole by contiguous thirds.
//   tied            lives on the first and on the last stage; both copies start equal and see the
//   same gradient
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "sched/plan/grid.h"

namespace sinew::model {

struct Slice {
  std::int64_t outer = 1;
  std::int64_t parts = 1;
  std::int64_t size = 0;
  std::int64_t inner = 1;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t local_count() const { return outer * parts * (end - begin) * inner; }
  [[nodiscard]] std::int64_t logical_count() const { return outer * parts * size * inner; }
  [[nodiscard]] bool whole() const { return begin == 0 && end == size; }

  // The contiguous runs it consists of, by increasing offsets; one when it is whole.
  struct Run {
    std::int64_t local = 0;    // offset in the slice
    std::int64_t logical = 0;  // offset in the logical tensor
    std::int64_t count = 0;
  };
  [[nodiscard]] std::int64_t run_count() const { return whole() ? 1 : outer * parts; }
  [[nodiscard]] Run run(std::int64_t i) const {
    if (whole()) return {0, 0, logical_count()};
    const std::int64_t count = (end - begin) * inner;
    return {i * count, (i * size + begin) * inner, count};
  }
  // Calls body(local offset, logical offset, count) for each run.
  template <typename Body>
  void for_each_run(Body&& body) const {
    for (std::int64_t i = 0; i < run_count(); ++i) {
      const Run r = run(i);
      body(r.local, r.logical, r.count);
    }
  }
};

enum class OverTensor : std::uint8_t {
  kSharded,     // each tensor-parallel rank holds a slice; gradients belong to the slice alone
  kReplicated,  // each holds all of it, with equal gradients; counted once, on tensor rank 0
};

struct Layout {
  OverTensor tensor = OverTensor::kReplicated;
  bool tied = false;
  // kReplicated: each tensor rank finds the gradient of its own rows only; the sum over them is the
  // gradient (norms under sequence parallelism).
  bool partial = false;
  // kSharded: this many neighbouring tensor ranks hold the same slice, and each finds its own
  // queries' part of the gradient (fewer key/value heads than tensor ranks).
  int copies = 1;
};

// One parameter as this rank holds it.
struct Parameter {
  std::string name;                 // Hugging Face's
  std::vector<std::int64_t> shape;  // logical
  int index = 0;  // position in the whole model's list; the order of every sum over parameters
  Layout layout;
  Slice slice;
  std::int64_t offset = 0;  // of the slice in the rank's flat buffers
  bool decay = false;       // weight decay: tensors of two or more dimensions
  double init_std = 0;      // normal with this deviation; 0: constant init_value
  double init_value = 0;
  bool final_norm = false;  // of those the last stage begins its end with
  bool second_copy =
      false;  // the last stage's copy of a tied parameter: its gradient counts elsewhere
};

// The runs of a parameter's slice that lie in [begin, end) of the flat buffers: body(flat, logical,
// count).
template <typename Body>
void for_each_run_within(const Parameter& p, std::int64_t begin, std::int64_t end, Body&& body) {
  if (p.offset >= end || p.offset + p.slice.local_count() <= begin) return;
  p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
    const std::int64_t first = std::max(p.offset + local, begin);
    const std::int64_t last = std::min(p.offset + local + count, end);
    if (first < last) body(first, logical + (first - p.offset - local), last - first);
  });
}

// Whether the rank at these coordinates is the one, among the ranks that differ along tensor and
// pipeline axes, that stands for its slice: what counts in a norm, what is written to a checkpoint.
[[nodiscard]] inline bool holds_for_all(const Parameter& p, const sched::PerAxis& coordinates) {
  if (p.second_copy) return false;
  if (p.layout.tensor == OverTensor::kReplicated) return coordinates.tp == 0;
  return coordinates.tp % p.layout.copies == 0;
}

// A range of whole layers, and the ends that this stage holds.
struct StageShape {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool has_embedding = false;
  bool has_head = false;
};

// Stage `stage` of `stages`: layers by partition(), the embedding on the first, the head on the
// last.
[[nodiscard]] StageShape stage_shape(const Config& config, int stages, int stage);

struct TensorRank {
  int rank = 0;
  int world = 1;
  bool sequence_parallel = false;
  int row_chunks = 1;  // sched::RunShape's
};

// Hugging Face's names of the parameters at the two ends; null where the family has none.
struct EndNames {
  const char* table;
  const char* positions;
  const char* norm_weight;
  const char* norm_bias;
  const char* head;  // the table's own where it is tied
};
[[nodiscard]] EndNames end_names(const Config& config);

// Tensor ranks that hold the same key/value head.
[[nodiscard]] inline int key_value_copies(const Config& config, int tensor_world) {
  return std::max(1, tensor_world / static_cast<int>(config.key_value_heads()));
}

// Part of the flat buffers that data parallelism cuts by itself: each table, one layer, the final
// norm, a second copy of a tied table (cut as the first one is). Units are the same whatever the
// pipeline, and so is which element of them goes to which data-parallel rank.
struct Unit {
  std::int64_t begin = 0;
  std::int64_t count = 0;  // padding included
  std::size_t first = 0;   // of its parameters, which follow each other
  int layer = -1;          // of the model; -1: one of the ends
  friend bool operator==(const Unit&, const Unit&) = default;
};

// The parameters of a rank's stages on one tensor-parallel rank, back to back in model order
// within units.
struct FlatLayout {
  std::vector<Parameter> parameters;
  std::vector<Unit> units;
  std::int64_t count = 0;  // elements of the flat buffers, padding included
};

// stages: those of one rank, in model order. Every unit's count is padded to a multiple of
// `multiple`; padding holds no parameter.
[[nodiscard]] FlatLayout flat_layout(const Config& config, const std::vector<StageShape>& stages,
                                     TensorRank tensor, std::int64_t multiple = 1);

// All parameters of the model, whole.
[[nodiscard]] std::vector<Parameter> whole_parameters(const Config& config);
// Their names, in model order.
[[nodiscard]] std::vector<std::string> parameter_names(const Config& config);

}  // namespace sinew::model
