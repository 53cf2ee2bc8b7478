// Config: the shape of a model, by name or from a JSON file.
//
// Never does: hold weights. Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sched/plan/model_shape.h"

namespace sinew::model {

// C channels, H heads of C/H, L layers, V vocabulary. Pre-norm in both families:
//   GPT-2  layer norm, learned positions, biases, tanh-GELU MLP of 4 C hidden units
//   Llama  RMS norm, rotary positions, no biases, SwiGLU MLP; kv_heads divides heads (grouped-query
//          attention)
struct Config {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  std::int64_t max_time = 0;  // longest sequence
  sched::Family family = sched::Family::kGpt2;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t hidden = 0;    // 0: 4 C
  bool tied = true;           // the head is the token table
  double rope_theta = 1e4;    // of rotary positions
  double norm_epsilon = 1e-5;

  [[nodiscard]] bool is_llama() const { return family == sched::Family::kLlama; }
  [[nodiscard]] std::int64_t key_value_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  [[nodiscard]] std::int64_t hidden_units() const { return hidden > 0 ? hidden : 4 * channels; }
  [[nodiscard]] std::int64_t head_dim() const { return channels / heads; }
  // GPT-2, tied: V C + max_time C + L(12 C^2 + 13 C) + 2 C; else sched/plan/model_shape.h.
  [[nodiscard]] std::int64_t parameters() const;
  friend bool operator==(const Config&, const Config&) = default;
};

// The named models: GPT-2's four sizes and small ones of both families.
[[nodiscard]] const std::vector<Config>& named_configs();

// A name of the table, the path of a .bin file of llm.c (llmc_model.h), or a JSON object or the
// path of a .json file of one, with the keys layers, heads, channels, vocabulary, max_time, and
// optionally name, family (gpt2 or llama), tied (true or false) and norm_epsilon; for Llama also
// kv_heads, hidden, rope_theta.
// Throws UsageError naming the key or name and what is legal.
[[nodiscard]] Config load_config(const std::string& name_or_path);
[[nodiscard]] Config parse_config(std::string_view json_text, const std::string& where);
[[nodiscard]] std::string to_json(const Config& config);

// What the planner and its formulas know a model by.
[[nodiscard]] sched::ModelShape shape_of(const Config& config);

// Throws UsageError unless the shape makes sense by itself.
void validate(const Config& config);

}  // namespace sinew::model
