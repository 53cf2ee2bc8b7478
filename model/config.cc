#include "model/config.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

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

std::string legal_keys() {
  std::string text = "name";
  for (const Key& key : kKeys) text += std::string(", ") + key.name;
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

}  // namespace

std::int64_t Config::parameters() const {
  return vocabulary * channels + max_time * channels +
         layers * (12 * channels * channels + 13 * channels) + 2 * channels;
}

const std::vector<Config>& named_configs() {
  static const std::vector<Config> configs = {
      {"gpt2-124m", 12, 12, 768, 50257, 1024},  {"gpt2-350m", 24, 16, 1024, 50257, 1024},
      {"gpt2-774m", 36, 20, 1280, 50257, 1024}, {"gpt2-1558m", 48, 25, 1600, 50257, 1024},
      {"byte-tiny", 2, 4, 64, 256, 128},        {"byte-small", 4, 4, 128, 256, 256},
      {"byte-base", 6, 8, 256, 256, 256},
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
}

sched::ModelShape shape_of(const Config& config) {
  return sched::gpt2_shape(config.name, config.layers, config.heads, config.channels,
                           config.vocabulary, config.max_time);
}

Config parse_config(std::string_view json_text, const std::string& where) {
  const nlohmann::json document = nlohmann::json::parse(json_text, nullptr, false);
  if (document.is_discarded() || !document.is_object()) {
    throw UsageError(fmt::format("{}: not a JSON object; legal keys: {}", where, legal_keys()));
  }
  Config config;
  config.name = where;
  for (const auto& [name, value] : document.items()) {
    if (name == "name") {
      if (!value.is_string()) throw UsageError(fmt::format("{}: name is not a string", where));
      config.name = value.get<std::string>();
      continue;
    }
    bool known = false;
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
  if (!name_or_path.ends_with(".json")) {
    throw UsageError(fmt::format(
        "model '{}' is unknown; legal values: {}or the path of a .json file", name_or_path, names));
  }
  std::ifstream file(name_or_path, std::ios::binary);
  if (!file) throw UsageError(fmt::format("model file '{}' cannot be read", name_or_path));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_config(text.str(), name_or_path);
}

std::string to_json(const Config& config) {
  nlohmann::json document = {{"name", config.name}};
  for (const Key& key : kKeys) document[key.name] = config.*key.field;
  return document.dump();
}

}  // namespace sinew::model
