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

// GPT-2: pre-norm, learned positions, tanh-GELU, tied head. C channels, H heads of C/H, L layers, V
// vocabulary.
struct Config {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 0;
  std::int64_t vocabulary = 0;
  std::int64_t max_time = 0;  // longest sequence (learned positions)

  [[nodiscard]] std::int64_t head_dim() const { return channels / heads; }
  // V C + max_time C + L(12 C^2 + 13 C) + 2 C.
  [[nodiscard]] std::int64_t parameters() const;
  friend bool operator==(const Config&, const Config&) = default;
};

// The named models: GPT-2's four sizes and small ones.
[[nodiscard]] const std::vector<Config>& named_configs();

// A name of the table, or the path of a .json file with the keys layers, heads, channels,
// vocabulary, max_time (and optionally name). Throws UsageError naming the key or name and what is
// legal.
[[nodiscard]] Config load_config(const std::string& name_or_path);
[[nodiscard]] Config parse_config(std::string_view json_text, const std::string& where);
[[nodiscard]] std::string to_json(const Config& config);

// What the planner and its formulas know a model by.
[[nodiscard]] sched::ModelShape shape_of(const Config& config);

// Throws UsageError unless the shape makes sense by itself.
void validate(const Config& config);

}  // namespace sinew::model
