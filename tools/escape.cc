#include "tools/escape.h"

namespace sinew::tools {
namespace {

// How many bytes a character of UTF-8 that can be shown takes at the start of `text`; 0 where none
// stands.
std::size_t shown_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const std::size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc2 ? 2 : 0;
  if (length > text.size() || byte(0) > 0xf4) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  // What follows 0xc2 here are the control characters of the upper half.
  return length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0 ? 0 : length;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    std::size_t length = text[0] == '\n' ? 1 : shown_length(text);
    if (length > 0) {
      safe += text.substr(0, length);
    } else {
      constexpr std::string_view kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(text[0]);
      safe += {'\\', 'x', kDigits[byte >> 4U], kDigits[byte & 15U]};
      length = 1;
    }
    text.remove_prefix(length);
  }
  return safe;
}

}  // namespace sinew::tools
