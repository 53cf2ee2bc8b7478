#include "tools/json_lines.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sched/base/text.h"

namespace sinew::tools {
namespace {

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

JsonRecord& JsonRecord::add_text(std::string_view key, const std::string& value) {
  if (!members_.empty()) members_ += ", ";
  members_ += json_text(key) + ": " + value;
  return *this;
}

JsonRecord& JsonRecord::add(std::string_view key, std::int64_t value) {
  return add_text(key, fmt::format("{}", value));
}

JsonRecord& JsonRecord::add(std::string_view key, double value) {
  return add_text(key, std::isfinite(value) ? fmt::format("{:.6g}", value) : "null");
}

JsonRecord& JsonRecord::add(std::string_view key, std::optional<double> value) {
  return value ? add(key, *value) : add_text(key, "null");
}

JsonRecord& JsonRecord::add(std::string_view key, bool value) {
  return add_text(key, value ? "true" : "false");
}

JsonRecord& JsonRecord::add(std::string_view key, std::string_view value) {
  return add_text(key, json_text(value));
}

JsonRecord& JsonRecord::add(std::string_view key, std::span<const std::string> values) {
  std::vector<std::string> texts;
  for (const std::string& value : values) texts.push_back(json_text(value));
  return add_text(key, "[" + join(texts, ", ") + "]");
}

void JsonLines::write(const JsonRecord& record) {
  output_.write(record.text() + "\n");
  output_.flush();
}

}  // namespace sinew::tools
