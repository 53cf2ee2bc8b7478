#include "model/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

namespace sinew::model {

namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

#include "model/unicode_ranges.inc"

bool is_in(std::span<const Range> ranges, std::uint32_t code) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](std::uint32_t value, const Range& range) { return value < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

}  // namespace

Character next_character(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  constexpr Character kNone{kNoCharacter, 1};
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return kNone;
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kNone;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[length] || code > 0x10FFFF || surrogate) return kNone;
  return {code, length};
}

bool is_letter(std::uint32_t code) { return is_in(kLetters, code); }
bool is_number(std::uint32_t code) { return is_in(kNumbers, code); }
bool is_space(std::uint32_t code) { return is_in(kSpaces, code); }

}  // namespace sinew::model
