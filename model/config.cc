#include "model/config.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/llmc_model.h"
#include "model/quote.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

struct Key {
  const char* name;
  std::int64_t Config::*field;
  std::int64_t most;  // keeps every product of the shape within 64 bits
};

constexpr std::array kKeys = {
    Key{"layers", &Config::layers, 65535},       Key{"heads", &Config::heads, 65535},
    Key{"channels", &Config::channels, 1 << 20}, Key{"vocabulary", &Config::vocabulary, 1 << 24},
    Key{"max_time", &Config::max_time, 1 << 24},
};
// May be left out; only Llama has a choice.
constexpr std::array kLlamaKeys = {
    Key{"kv_heads", &Config::kv_heads, 65535},
    Key{"hidden", &Config::hidden, 1 << 22},
};

struct RealKey {
  const char* name;
  double Config::*field;
  double least;
  double most;
};
constexpr std::array kRealKeys = {
    RealKey{"norm_epsilon", &Config::norm_epsilon, 1e-12, 1},
    RealKey{"rope_theta", &Config::rope_theta, 1, 1e12},
};

std::string legal_keys() {
  std::string text = "name, family, tied";
  for (const Key& key : kKeys) text += std::string(", ") + key.name;
  for (const Key& key : kLlamaKeys) text += std::string(", ") + key.name;
  for (const RealKey& key : kRealKeys) text += std::string(", ") + key.name;
  return text;
}

std::int64_t read_number(const nlohmann::json& value, const Key& key, const std::string& where) {
  if (!value.is_number_integer()) {
    throw UsageError(fmt::format("{}: {} is {}, not a whole number; legal values: 1 to {}", where,
                                 key.name, value.dump(), key.most));
  }
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= static_cast<std::uint64_t>(key.most);
  const auto number = fits ? value.get<std::int64_t>() : key.most + 1;
  if (number < 1 || number > key.most) {
    throw UsageError(fmt::format("{}: {} is {}; legal values: 1 to {}", where, key.name,
                                 value.dump(), key.most));
  }
  return number;
}

double read_real(const nlohmann::json& value, const RealKey& key, const std::string& where) {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= key.least && number <= key.most)) {
    throw UsageError(fmt::format(
        "{}: {} is {}; legal values: {:g} to {:g}", where, key.name,
        value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), key.least, key.most));
  }
  return number;
}

// One key that may be left out; false when the name is none of them.
bool read_optional(const std::string& name, const nlohmann::json& value, const std::string& where,
                   Config& config) {
  const auto found = [&] {
    return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (name == "name") {
    if (!value.is_string()) throw UsageError(fmt::format("{}: name is not a string", where));
    config.name = value.get<std::string>();
    return true;
  }
  if (name == "family") {
    if (value != "gpt2" && value != "llama")
      throw UsageError(
          fmt::format("{}: family is {}; legal values: \"gpt2\", \"llama\"", where, found()));
    config.family = value == "llama" ? sched::Family::kLlama : sched::Family::kGpt2;
    return true;
  }
  if (name == "tied") {
    if (!value.is_boolean())
      throw UsageError(fmt::format("{}: tied is {}; legal values: true, false", where, found()));
    config.tied = value.get<bool>();
    return true;
  }
  for (const Key& key : kLlamaKeys) {
    if (name != key.name) continue;
    config.*key.field = read_number(value, key, where);
    return true;
  }
  for (const RealKey& key : kRealKeys) {
    if (name != key.name) continue;
    config.*key.field = read_real(value, key, where);
    return true;
  }
  return false;
}

}  // namespace

std::int64_t Config::parameters() const { return sched::parameter_count(shape_of(*this)); }

namespace {

struct LlamaSizes {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t channels = 0;
  std::int64_t hidden = 0;
};

// Bytes are tokens, the head is its own matrix.
Config llama(const char* name, const LlamaSizes& sizes) {
  Config config{name, sizes.layers, sizes.heads, sizes.channels, 256, 256};
  config.family = sched::Family::kLlama;
  config.kv_heads = sizes.kv_heads;
  config.hidden = sizes.hidden;
  config.tied = false;
  return config;
}

}  // namespace

const std::vector<Config>& named_configs() {
  static const std::vector<Config> configs = {
      {"gpt2-124m", 12, 12, 768, 50257, 1024},
      {"gpt2-350m", 24, 16, 1024, 50257, 1024},
      {"gpt2-774m", 36, 20, 1280, 50257, 1024},
      {"gpt2-1558m", 48, 25, 1600, 50257, 1024},
      {"byte-tiny", 2, 4, 64, 256, 128},
      {"byte-small", 4, 4, 128, 256, 256},
      {"byte-base", 6, 8, 256, 256, 256},
      llama("llama-tiny", {.layers = 2, .heads = 4, .kv_heads = 2, .channels = 64, .hidden = 176}),
      llama("llama-small",
            {.layers = 4, .heads = 8, .kv_heads = 2, .channels = 128, .hidden = 344}),
  };
  return configs;
}

void validate(const Config& config) {
  for (const Key& key : kKeys) {
    const std::int64_t value = config.*key.field;
    if (value < 1 || value > key.most) {
      throw UsageError(fmt::format("model {}: {} is {}; legal values: 1 to {}", quoted(config.name),
                                   key.name, value, key.most));
    }
  }
  if (config.channels % config.heads != 0) {
    throw UsageError(fmt::format("model {}: channels {} are not a multiple of heads {}",
                                 quoted(config.name), config.channels, config.heads));
  }
  if (!config.is_llama()) {
    if (config.kv_heads != 0 || config.hidden != 0)
      throw UsageError(fmt::format(
          "model {}: kv_heads and hidden are keys of Llama; GPT-2 has as many as heads and "
          "4 x channels",
          quoted(config.name)));
    return;
  }
  if (config.heads % config.key_value_heads() != 0) {
    throw UsageError(fmt::format("model {}: heads {} are not a multiple of kv_heads {}",
                                 quoted(config.name), config.heads, config.kv_heads));
  }
  if (config.head_dim() % 2 != 0) {
    throw UsageError(
        fmt::format("model {}: heads of {} channels; rotary positions turn pairs, so a head's "
                    "channels are even",
                    quoted(config.name), config.head_dim()));
  }
}

sched::ModelShape shape_of(const Config& config) {
  return {.name = config.name,
          .family = config.family,
          .layers = config.layers,
          .heads = config.heads,
          .kv_heads = config.key_value_heads(),
          .channels = config.channels,
          .hidden = config.hidden_units(),
          .vocabulary = config.vocabulary,
          .positions = config.max_time,
          .tied = config.tied};
}

Config parse_config(std::string_view json_text, const std::string& where) {
  std::set<std::string> keys;
  std::string twice;
  const auto note_key = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& found) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key &&
        !keys.insert(found.get<std::string>()).second)
      twice = found.get<std::string>();
    return true;
  };
  const nlohmann::json document = nlohmann::json::parse(json_text, note_key, false);
  if (document.is_discarded() || !document.is_object()) {
    throw UsageError(fmt::format("{}: not a JSON object; legal keys: {}", where, legal_keys()));
  }
  if (!twice.empty())
    throw UsageError(
        fmt::format("{}: key {} is given twice; legal: once", where, model::quoted(twice)));
  Config config;
  config.name = where;
  for (const auto& [name, value] : document.items()) {
    bool known = read_optional(name, value, where, config);
    for (const Key& key : kKeys) {
      if (name != key.name) continue;
      config.*key.field = read_number(value, key, where);
      known = true;
    }
    if (!known)
      throw UsageError(
          fmt::format("{}: unknown key {}; legal keys: {}", where, quoted(name), legal_keys()));
  }
  for (const Key& key : kKeys) {
    if (config.*key.field == 0)
      throw UsageError(fmt::format("{}: key '{}' is missing", where, key.name));
  }
  validate(config);
  return config;
}

Config load_config(const std::string& name_or_path) {
  std::string names;
  for (const Config& config : named_configs()) {
    if (config.name == name_or_path) return config;
    names += config.name + ", ";
  }
  if (name_or_path.starts_with('{')) return parse_config(name_or_path, "model");
  if (name_or_path.ends_with(".bin")) return LlmcModelFile(name_or_path).header().config;
  if (!name_or_path.ends_with(".json")) {
    throw UsageError(
        fmt::format("model '{}' is unknown; legal values: {}or the path of a .json file or of a "
                    ".bin file of llm.c",
                    name_or_path, names));
  }
  std::ifstream file(name_or_path, std::ios::binary);
  if (!file) {
    throw UsageError(
        fmt::format("model file '{}' cannot be read: {}", name_or_path, std::strerror(errno)));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return parse_config(text.str(), name_or_path);
}

std::string to_json(const Config& config) {
  nlohmann::json document = {{"name", config.name}};
  for (const Key& key : kKeys) document[key.name] = config.*key.field;
  document["tied"] = config.tied;
  document["norm_epsilon"] = config.norm_epsilon;
  if (config.is_llama()) {
    document["family"] = "llama";
    document["rope_theta"] = config.rope_theta;
    for (const Key& key : kLlamaKeys) {
      if (config.*key.field > 0) document[key.name] = config.*key.field;
    }
  }
  return document.dump();
}

}  // namespace sinew::model
