// Small text helpers that every parser and printer shares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinew {

[[nodiscard]] std::string_view trim(std::string_view text);
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);
// The lines of a file that people write, without the byte order mark that some editors begin it
// with.
[[nodiscard]] std::vector<std::string_view> text_lines(std::string_view text);
// Splits at runs of blanks; no empty fields.
[[nodiscard]] std::vector<std::string_view> fields(std::string_view text);
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
// The whole of `text` as a number, else UsageError "<what> '<text>' is not a whole number" or "...
// a number".
[[nodiscard]] std::int64_t parse_int(std::string_view text, std::string_view what);
[[nodiscard]] double parse_double(std::string_view text, std::string_view what);

// "1 rank", "3 ranks"; `plural` where an s does not make it.
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun,
                                  std::string_view plural = {});

}  // namespace sinew
