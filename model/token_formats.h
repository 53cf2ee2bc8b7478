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
#include "model/host_memory.h"

namespace sinew::model {

enum class TokenFormat : std::uint8_t { kAuto, kText, kJsonl, kLlmc, kNanogpt, kMegatron };
// Throws UsageError naming the six.
[[nodiscard]] TokenFormat parse_token_format(std::string_view name);
// What kAuto is for a file of this name and content; has_index: PATH.idx is there for PATH.bin.
[[nodiscard]] TokenFormat find_token_format(std::string_view path, std::span<const std::byte> bytes,
                                            bool has_index);

// Little-endian tokens of `width` bytes, the fewest that hold them all: in the file or, when
// converted, in `owned` or in memory that the ranks of a host share.
// Moves, never copies: `tokens` may point into `owned`.
struct TokenRun {
  TokenRun() = default;
  TokenRun(TokenRun&&) = default;
  TokenRun& operator=(TokenRun&&) = default;

  const std::byte* tokens = nullptr;
  std::int64_t count = 0;
  int width = 1;  // 1, 2 or 4
  std::string_view format;
  std::vector<std::byte> owned;
  HostMemory shared;
};

// Whether the format's tokens are not in the file but made from it: by a tokenizer (null where
// bytes are tokens), or out of JSON.
[[nodiscard]] bool is_converted(TokenFormat format, const Bpe* bpe);
// Part `part` of `parts` of a file that is converted: together they are the file, and their tokens
// one after the other are the file's.
[[nodiscard]] std::span<const std::byte> part_of(TokenFormat format,
                                                 std::span<const std::byte> bytes, int part,
                                                 int parts);
// The tokens of a part that begins behind `lines_before` lines of the file.
[[nodiscard]] std::vector<std::int32_t> convert(TokenFormat format, std::span<const std::byte> part,
                                                const Bpe* bpe, const std::string& where,
                                                std::int64_t lines_before = 0);
// Bytes that a token of at most `largest` takes.
[[nodiscard]] int width_for(std::int32_t largest);
// target: [tokens, width].
void write_tokens(std::span<const std::int32_t> tokens, int width, std::byte* target);
// Of a converted file, for people.
[[nodiscard]] std::string_view converted_format(TokenFormat format, const Bpe* bpe);
// Throws UsageError when a converted file has no tokens.
void require_tokens(TokenFormat format, std::int64_t count, const std::string& where);

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
