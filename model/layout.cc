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

  // Of a norm: sequence parallelism shows each tensor rank its own rows only.
  Parameter& norm(std::string name, std::int64_t channels) {
    Parameter& parameter = replicated(std::move(name), {channels});
    parameter.layout.partial = tensor_.sequence_parallel && tensor_.world > 1;
    return parameter;
  }

  // Cut along one logical dimension, each slice on `copies` neighbouring ranks.
  Parameter& sharded(std::string name, std::vector<std::int64_t> shape, Slice slice,
                     int copies = 1) {
    const Part part = partition(slice.size, tensor_.world / copies, tensor_.rank / copies);
    slice.begin = part.offset;
    slice.end = part.offset + part.count;
    Parameter& parameter = add(std::move(name), std::move(shape), OverTensor::kSharded, slice);
    parameter.layout.copies = copies;
    return parameter;
  }

  [[nodiscard]] int tensor_world() const { return tensor_.world; }

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

double projection_std(const Config& config) {
  return kInitStd / std::sqrt(2.0 * static_cast<double>(config.layers));
}

// Matrices [in, out]; twelve parameters.
void add_gpt2_layer(List& list, const Config& config, std::int64_t layer) {
  const std::int64_t c = config.channels;
  const std::string h = "h." + std::to_string(layer) + ".";
  list.norm(h + "ln_1.weight", c).init_value = 1;
  list.norm(h + "ln_1.bias", c);
  list.sharded(h + "attn.c_attn.weight", {c, 3 * c}, {c, 3, c, 1, 0, 0});
  list.sharded(h + "attn.c_attn.bias", {3 * c}, {1, 3, c, 1, 0, 0});
  list.sharded(h + "attn.c_proj.weight", {c, c}, {1, 1, c, c, 0, 0}).init_std =
      projection_std(config);
  list.replicated(h + "attn.c_proj.bias", {c});
  list.norm(h + "ln_2.weight", c).init_value = 1;
  list.norm(h + "ln_2.bias", c);
  list.sharded(h + "mlp.c_fc.weight", {c, 4 * c}, {c, 1, 4 * c, 1, 0, 0});
  list.sharded(h + "mlp.c_fc.bias", {4 * c}, {1, 1, 4 * c, 1, 0, 0});
  list.sharded(h + "mlp.c_proj.weight", {4 * c, c}, {1, 1, 4 * c, c, 0, 0}).init_std =
      projection_std(config);
  list.replicated(h + "mlp.c_proj.bias", {c});
}

// Matrices [out, in]; nine parameters. Query, key and value matrices follow each other, so that a
// rank's slices are one matrix to multiply by; so do gate and up.
void add_llama_layer(List& list, const Config& config, std::int64_t layer) {
  const std::int64_t c = config.channels;
  const std::int64_t x = config.hidden_units();
  const std::int64_t d = config.head_dim();
  const std::int64_t kv = config.key_value_heads();
  const int copies = key_value_copies(config, list.tensor_world());
  const std::string h = "model.layers." + std::to_string(layer) + ".";
  list.norm(h + "input_layernorm.weight", c).init_value = 1;
  list.sharded(h + "self_attn.q_proj.weight", {c, c}, {1, 1, config.heads, d * c, 0, 0});
  list.sharded(h + "self_attn.k_proj.weight", {kv * d, c}, {1, 1, kv, d * c, 0, 0}, copies);
  list.sharded(h + "self_attn.v_proj.weight", {kv * d, c}, {1, 1, kv, d * c, 0, 0}, copies);
  list.sharded(h + "self_attn.o_proj.weight", {c, c}, {c, 1, c, 1, 0, 0}).init_std =
      projection_std(config);
  list.norm(h + "post_attention_layernorm.weight", c).init_value = 1;
  list.sharded(h + "mlp.gate_proj.weight", {x, c}, {1, 1, x, c, 0, 0});
  list.sharded(h + "mlp.up_proj.weight", {x, c}, {1, 1, x, c, 0, 0});
  list.sharded(h + "mlp.down_proj.weight", {c, x}, {c, 1, x, 1, 0, 0}).init_std =
      projection_std(config);
}

void add_layer(List& list, const Config& config, std::int64_t layer) {
  if (config.is_llama()) {
    add_llama_layer(list, config, layer);
  } else {
    add_gpt2_layer(list, config, layer);
  }
  list.close_unit(static_cast<int>(layer));
}

// The first of a layer's numbers in the model's order, after the tables and the layers before it.
int layer_index(const Config& config, std::int64_t layer) {
  return config.is_llama() ? 1 + 9 * static_cast<int>(layer) : 2 + 12 * static_cast<int>(layer);
}

}  // namespace

EndNames end_names(const Config& config) {
  if (config.is_llama()) {
    return {"model.embed_tokens.weight", nullptr, "model.norm.weight", nullptr,
            config.tied ? "model.embed_tokens.weight" : "lm_head.weight"};
  }
  return {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias",
          config.tied ? "wte.weight" : "lm_head.weight"};
}

StageShape stage_shape(const Config& config, int stages, int stage) {
  const Part part = partition(config.layers, stages, stage);
  return {part.offset, part.count, stage == 0, stage + 1 == stages};
}

FlatLayout flat_layout(const Config& config, const std::vector<StageShape>& stages,
                       TensorRank tensor, std::int64_t multiple) {
  List list(tensor, multiple);
  const EndNames names = end_names(config);
  const auto table = [&](const char* name) -> Parameter& {
    return list.sharded(name, {config.vocabulary, config.channels},
                        {1, 1, config.vocabulary, config.channels, 0, 0});
  };
  const auto tied_table = [&](bool second_copy) {
    list.seek(0);
    Parameter& parameter = table(names.table);
    parameter.layout.tied = config.tied;
    parameter.second_copy = second_copy;
    list.close_unit();
  };
  bool has_table = false;
  for (const StageShape& stage : stages) {
    if (stage.has_embedding) {
      tied_table(false);
      has_table = true;
      if (names.positions != nullptr) {
        list.replicated(names.positions, {config.max_time, config.channels});
        list.close_unit();
      }
    }
    list.seek(layer_index(config, stage.first_layer));
    for (std::int64_t i = 0; i < stage.layers; ++i) add_layer(list, config, stage.first_layer + i);
    if (!stage.has_head) continue;
    list.seek(layer_index(config, config.layers));
    Parameter& norm = list.norm(names.norm_weight, config.channels);
    norm.init_value = 1;
    norm.final_norm = true;
    if (names.norm_bias != nullptr) list.norm(names.norm_bias, config.channels);
    list.close_unit();
    if (!config.tied) {
      table(names.head);
      list.close_unit();
    } else if (!has_table) {
      tied_table(true);
    }
  }
  return list.take();
}

std::vector<Parameter> whole_parameters(const Config& config) {
  return flat_layout(config, {{0, config.layers, true, true}}, {}).parameters;
}

std::vector<std::string> parameter_names(const Config& config) {
  std::vector<std::string> names;
  for (const Parameter& p : whole_parameters(config)) names.push_back(p.name);
  return names;
}

}  // namespace sinew::model
