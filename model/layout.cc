#include "model/layout.h"

#include <cmath>

#include "sched/base/partition.h"

namespace sinew::model {

namespace {

// GPT-2's initialisation: N(0, 0.02), the two projections into the residual stream 0.02/sqrt(2L).
constexpr double kInitStd = 0.02;

class List {
 public:
  List(TensorRank tensor, std::int64_t multiple) : tensor_(tensor), multiple_(multiple) {}

  // Whole on every tensor rank.
  Parameter& replicated(std::string name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    Slice slice{1, 1, count, 1, 0, count};
    return add(std::move(name), std::move(shape), OverTensor::kReplicated, slice);
  }

  // Cut along one logical dimension.
  Parameter& sharded(std::string name, std::vector<std::int64_t> shape, Slice slice) {
    const Part part = partition(slice.size, tensor_.world, tensor_.rank);
    slice.begin = part.offset;
    slice.end = part.offset + part.count;
    return add(std::move(name), std::move(shape), OverTensor::kSharded, slice);
  }

  // The next parameter's number in the whole model.
  void seek(int index) { index_ = index; }

  // Ends a unit: what was added since the last one, and padding. layer: -1 for one of the ends.
  void close_unit(int layer = -1) {
    const std::int64_t begin = flat_.count;
    const std::int64_t used = offset_ - begin;
    const std::int64_t padded = (used + multiple_ - 1) / multiple_ * multiple_;
    flat_.units.push_back({begin, padded, first_of_unit_, layer});
    first_of_unit_ = flat_.parameters.size();
    flat_.count = begin + padded;
    offset_ = flat_.count;
  }

  FlatLayout take() { return std::move(flat_); }

 private:
  Parameter& add(std::string name, std::vector<std::int64_t> shape, OverTensor tensor,
                 const Slice& slice) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.decay = shape.size() >= 2;
    parameter.init_std = shape.size() >= 2 ? kInitStd : 0;
    parameter.shape = std::move(shape);
    parameter.index = index_++;
    parameter.layout.tensor = tensor;
    parameter.slice = slice;
    parameter.offset = offset_;
    offset_ += slice.local_count();
    flat_.parameters.push_back(std::move(parameter));
    return flat_.parameters.back();
  }

  TensorRank tensor_;
  std::int64_t multiple_;
  int index_ = 0;
  std::int64_t offset_ = 0;
  std::size_t first_of_unit_ = 0;
  FlatLayout flat_;
};

constexpr int kTables = 2;  // before the layers in the model's order
constexpr int kLayerParameters = 12;

void add_layer(List& list, const Config& config, std::int64_t layer) {
  const std::int64_t c = config.channels;
  const std::string h = "h." + std::to_string(layer) + ".";
  const double projection_std = kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
  list.replicated(h + "ln_1.weight", {c}).init_value = 1;
  list.replicated(h + "ln_1.bias", {c});
  list.sharded(h + "attn.c_attn.weight", {c, 3 * c}, {c, 3, c, 1, 0, 0});
  list.sharded(h + "attn.c_attn.bias", {3 * c}, {1, 3, c, 1, 0, 0});
  list.sharded(h + "attn.c_proj.weight", {c, c}, {1, 1, c, c, 0, 0}).init_std = projection_std;
  list.replicated(h + "attn.c_proj.bias", {c});
  list.replicated(h + "ln_2.weight", {c}).init_value = 1;
  list.replicated(h + "ln_2.bias", {c});
  list.sharded(h + "mlp.c_fc.weight", {c, 4 * c}, {c, 1, 4 * c, 1, 0, 0});
  list.sharded(h + "mlp.c_fc.bias", {4 * c}, {1, 1, 4 * c, 1, 0, 0});
  list.sharded(h + "mlp.c_proj.weight", {4 * c, c}, {1, 1, 4 * c, c, 0, 0}).init_std =
      projection_std;
  list.replicated(h + "mlp.c_proj.bias", {c});
  list.close_unit(static_cast<int>(layer));
}

}  // namespace

StageShape stage_shape(const Config& config, int stages, int stage) {
  const Part part = partition(config.layers, stages, stage);
  return {part.offset, part.count, stage == 0, stage + 1 == stages};
}

FlatLayout flat_layout(const Config& config, const std::vector<StageShape>& stages,
                       TensorRank tensor, std::int64_t multiple) {
  List list(tensor, multiple);
  const auto token_table = [&](bool second_copy) {
    list.seek(0);
    Parameter& table = list.sharded("wte.weight", {config.vocabulary, config.channels},
                                    {1, 1, config.vocabulary, config.channels, 0, 0});
    table.layout.tied = true;
    table.second_copy = second_copy;
    list.close_unit();
  };
  bool has_table = false;
  for (const StageShape& stage : stages) {
    if (stage.has_embedding) {
      token_table(false);
      has_table = true;
      list.replicated("wpe.weight", {config.max_time, config.channels});
      list.close_unit();
    }
    list.seek(kTables + static_cast<int>(stage.first_layer) * kLayerParameters);
    for (std::int64_t i = 0; i < stage.layers; ++i) add_layer(list, config, stage.first_layer + i);
    if (!stage.has_head) continue;
    list.seek(kTables + static_cast<int>(config.layers) * kLayerParameters);
    list.replicated("ln_f.weight", {config.channels}).init_value = 1;
    list.replicated("ln_f.bias", {config.channels});
    list.close_unit();
    if (!has_table) token_table(true);
  }
  return list.take();
}

std::vector<Parameter> whole_parameters(const Config& config) {
  return flat_layout(config, {{0, config.layers, true, true}}, {}).parameters;
}

}  // namespace sinew::model
