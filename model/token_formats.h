// Formats of token data: each turns the bytes of a file into a run of tokens, or refuses them in
// one line that says what was found.
//
//   llmc      llm.c .bin: version 1 (magic 20240520, uint16), for Llama 3 (magic 20240801, version
//   7,
//             uint32)
//   nanogpt   .bin without a header: uint16
//   megatron  PATH.bin with PATH.idx (magic MMIDIDX, version 1): sequences of tokens, read one
//   after
//             the other in the index's order
//   jsonl     one JSON object a line; its "text" is a document. After each comes the tokenizer's
//   end
//             of text, or a newline where bytes are tokens
//   text      any file: one token a byte, or a tokenizer's
//   auto      llm.c by its magic; by their names .jsonl, PATH.bin beside PATH.idx, and other .bin
//             files (nanogpt); else text
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/bpe.h"

namespace sinew::model {

enum class TokenFormat : std::uint8_t { kAuto, kText, kJsonl, kLlmc, kNanogpt, kMegatron };
// Throws UsageError naming the six.
[[nodiscard]] TokenFormat parse_token_format(std::string_view name);
// What kAuto is for a file of this name and content; has_index: PATH.idx is there for PATH.bin.
[[nodiscard]] TokenFormat find_token_format(std::string_view path, std::span<const std::byte> bytes,
                                            bool has_index);

// Little-endian tokens of `width` bytes, in the file or, when converted, in `owned`.
// Moves, never copies: `tokens` may point into `owned`.
struct TokenRun {
  TokenRun() = default;
  TokenRun(TokenRun&&) = default;
  TokenRun& operator=(TokenRun&&) = default;

  const std::byte* tokens = nullptr;
  std::int64_t count = 0;
  int width = 1;  // 1, 2 or 4
  std::string_view format;
  std::vector<std::int32_t> owned;
};

// Throw UsageError. `bytes` must outlive the result.
[[nodiscard]] TokenRun read_llmc(std::span<const std::byte> bytes, const std::string& where);
[[nodiscard]] TokenRun read_nanogpt(std::span<const std::byte> bytes, const std::string& where);
[[nodiscard]] TokenRun read_megatron(std::span<const std::byte> index,
                                     std::span<const std::byte> bytes, const std::string& where);
// bpe: null where bytes are tokens.
[[nodiscard]] TokenRun read_text(std::span<const std::byte> bytes, const Bpe* bpe);
[[nodiscard]] TokenRun read_jsonl(std::span<const std::byte> bytes, const Bpe* bpe,
                                  const std::string& where);

}  // namespace sinew::model
