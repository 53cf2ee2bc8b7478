#include "sched/base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string>

#include "sched/base/error.h"

namespace sinew {

namespace {
constexpr std::string_view kBlanks = " \t\r\n";
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string_view> text_lines(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return split(text, '\n');
}

std::vector<std::string_view> fields(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto first = text.find_first_not_of(kBlanks);
    if (first == std::string_view::npos) return parts;
    text.remove_prefix(first);
    const auto length = std::min(text.find_first_of(kBlanks), text.size());
    parts.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::int64_t parse_int(std::string_view text, std::string_view what) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status == std::errc::result_out_of_range && stop == end) {
    throw UsageError(std::string(what) + " '" + std::string(text) +
                     "' is out of range: a whole number has at most 63 bits");
  }
  if (text.empty() || status != std::errc() || stop != end) {
    throw UsageError(std::string(what) + " '" + std::string(text) + "' is not a whole number");
  }
  return value;
}

double parse_double(std::string_view text, std::string_view what) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (text.empty() || status != std::errc() || stop != end || !std::isfinite(value)) {
    throw UsageError(std::string(what) + " '" + std::string(text) + "' is not a finite number");
  }
  return value;
}

std::string counted(std::int64_t count, std::string_view noun, std::string_view plural) {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace sinew
