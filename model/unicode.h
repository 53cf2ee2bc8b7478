// Unicode: the characters of UTF-8 text and the three classes that a tokenizer cuts words by.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sinew::model {

struct Character {
  std::uint32_t code = 0;
  std::size_t length = 1;  // bytes
};

// What a byte that begins no well-formed character counts as: one byte long, of no class.
inline constexpr std::uint32_t kNoCharacter = 0xFFFFFFFF;

// The first character of `text`, which must not be empty.
[[nodiscard]] Character next_character(std::string_view text);

// Unicode's general categories L and N (data of Unicode 14), and white space.
[[nodiscard]] bool is_letter(std::uint32_t code);
[[nodiscard]] bool is_number(std::uint32_t code);
[[nodiscard]] bool is_space(std::uint32_t code);

}  // namespace sinew::model
