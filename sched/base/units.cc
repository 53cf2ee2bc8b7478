#include "sched/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew {

namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

std::vector<std::int64_t> expand_range(std::string_view text) {
  const auto parts = split(text, ':');
  const std::int64_t first = parse_bytes(parts[0]);
  if (parts.size() == 1) return {first};
  if (parts.size() != 3 || parts[2].size() < 2 || (parts[2][0] != 'x' && parts[2][0] != '+')) {
    throw UsageError(fmt::format(
        "size range '{}' is malformed; legal forms: SIZE, FIRST:LAST:xFACTOR, FIRST:LAST:+STEP",
        text));
  }
  const std::int64_t last = parse_bytes(parts[1]);
  const bool multiply = parts[2][0] == 'x';
  const std::int64_t step = parse_bytes(parts[2].substr(1));
  if (last < first || step < (multiply ? 2 : 1) || (multiply && first == 0)) {
    throw UsageError(fmt::format(
        "size range '{}' never ends; FIRST <= LAST, a factor of at least 2 or a step of at least 1",
        text));
  }
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = first; size <= last; size = multiply ? size * step : size + step) {
    sizes.push_back(size);
    if (sizes.size() > 100000)
      throw UsageError(
          fmt::format("size range '{}' has over 100000 sizes: legal are up to that many", text));
    if (multiply && size > kMaxBytes / step) break;
  }
  return sizes;
}

}  // namespace

std::int64_t parse_bytes(std::string_view text) {
  const std::string_view whole = text;
  const auto fail = [&]() -> std::int64_t {
    throw UsageError(fmt::format(
        "size '{}' is not a byte count; legal: a whole number up to {}, K, M, G or T after it",
        whole, format_bytes(kMaxBytes)));
  };
  int shift = 0;
  if (text.size() > 1 && (text.back() == 'B' || text.back() == 'b')) text.remove_suffix(1);
  if (text.size() > 1 && text.back() == 'i') text.remove_suffix(1);
  if (text.empty()) return fail();
  switch (std::toupper(static_cast<unsigned char>(text.back()))) {
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
    case 'T':
      shift = 40;
      break;
    default:
      break;
  }
  if (shift != 0) text.remove_suffix(1);
  if (text.empty() || text.size() > 16) return fail();
  std::int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return fail();
    value = value * 10 + (c - '0');
  }
  if (value > (kMaxBytes >> shift)) return fail();
  return value << shift;
}

std::vector<std::int64_t> parse_byte_range(std::string_view text) {
  std::vector<std::int64_t> sizes;
  for (const auto part : split(text, ',')) {
    for (const std::int64_t size : expand_range(trim(part))) sizes.push_back(size);
  }
  return sizes;
}

std::string format_bytes(std::int64_t size_bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(size_bytes);
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value == static_cast<double>(static_cast<std::int64_t>(value));
  return whole ? fmt::format("{} {}", static_cast<std::int64_t>(value), kNames[unit])
               : fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 999.5e-9) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 999.5e-6) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 999.5e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const std::int64_t whole = std::llround(seconds);
  return whole < 7200 ? fmt::format("{}m{:02}s", whole / 60, whole % 60)
                      : fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

}  // namespace sinew
