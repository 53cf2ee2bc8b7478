#include "model/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/mapped_file.h"
#include "model/quote.h"
#include "model/unicode.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

// The files write each byte as a visible character: itself when it is one, else a character from
// 256 on, in the order of the bytes.
bool is_visible_byte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// By code point below 512: the byte it stands for, or -1.
std::vector<int> bytes_of_code_points() {
  std::vector<int> bytes(512, -1);
  std::size_t next = 256;
  for (int byte = 0; byte < 256; ++byte)
    bytes[is_visible_byte(byte) ? static_cast<std::size_t>(byte) : next++] = byte;
  return bytes;
}

// The bytes that a token's text in the files stands for; false when a character stands for none.
bool decode_visible(std::string_view text, std::string& bytes) {
  static const std::vector<int> table = bytes_of_code_points();
  while (!text.empty()) {
    const Character c = next_character(text);
    if (c.code >= table.size() || table[c.code] < 0) return false;
    bytes.push_back(static_cast<char>(table[c.code]));
    text.remove_prefix(c.length);
  }
  return true;
}

enum class Kind { kSpace, kLetter, kDigit, kOther };

Kind kind_of(const Character& c) {
  if (is_space(c.code)) return Kind::kSpace;
  if (is_letter(c.code)) return Kind::kLetter;
  return is_number(c.code) ? Kind::kDigit : Kind::kOther;
}

// Bytes at the start of `text` whose characters are all of this kind.
std::size_t run_length(std::string_view text, Kind kind) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Character c = next_character(text.substr(length));
    if (kind_of(c) != kind) break;
    length += c.length;
  }
  return length;
}

// Bytes of the last character before `end`, of a run of white space.
std::size_t last_length(std::string_view run) {
  std::size_t at = 0;
  std::size_t length = 0;
  while (at < run.size()) {
    length = next_character(run.substr(at)).length;
    at += length;
  }
  return length;
}

std::size_t word_length(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.starts_with(ending)) return ending.size();
  }
  const std::size_t space = text[0] == ' ' ? 1 : 0;
  if (space < text.size()) {
    const Kind kind = kind_of(next_character(text.substr(space)));
    if (kind != Kind::kSpace) return space + run_length(text.substr(space), kind);
  }
  const std::size_t run = run_length(text, Kind::kSpace);
  const std::size_t last = last_length(text.substr(0, run));
  // All of it at the end of the text, or when it is one character that is no space.
  return run == text.size() || run == last ? run : run - last;
}

}  // namespace

std::vector<std::string_view> bpe_words(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    words.push_back(text.substr(0, word_length(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

Bpe::Bpe(std::string_view vocabulary_json, std::string_view merges, const std::string& where) {
  read_vocabulary(vocabulary_json, where);
  read_merges(merges, where);
}

namespace {

// OpenAI's release has other names for the two files.
std::string find_file(const std::string& directory, const char* name, const char* other) {
  const std::string path = directory + "/" + other;
  return std::filesystem::exists(path) ? path : directory + "/" + name;
}

}  // namespace

Bpe Bpe::load(const std::string& directory) {
  const MappedFile vocabulary(find_file(directory, "vocab.json", "encoder.json"));
  const MappedFile merges(find_file(directory, "merges.txt", "vocab.bpe"));
  const auto text = [](const MappedFile& file) {
    return std::string_view(reinterpret_cast<const char*>(file.bytes().data()),
                            file.bytes().size());
  };
  return {text(vocabulary), text(merges), directory};
}

void Bpe::read_vocabulary(std::string_view json_text, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw UsageError(fmt::format("tokenizer '{}': vocab.json {}", where, what));
  };
  const nlohmann::json document = nlohmann::json::parse(json_text, nullptr, false);
  if (document.is_discarded() || !document.is_object() || document.empty())
    fail("is no JSON object of token texts and numbers");
  const std::size_t count = document.size();
  std::vector<bool> taken(count, false);
  texts_.resize(count);
  for (const auto& [text, number] : document.items()) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() >= count ||
        taken[number.get<std::size_t>()]) {
      fail(fmt::format("gives {} the number {}; legal values: 0 to {}, each once", quoted(text),
                       number.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                       count - 1));
    }
    const auto token = number.get<std::size_t>();
    taken[token] = true;
    std::string& bytes = texts_[token];
    if (text == kEndOfText) {
      end_of_text_ = static_cast<std::int32_t>(token);
      bytes = text;
    } else if (!decode_visible(text, bytes)) {
      bytes = text;  // a special token, which no text makes
    } else {
      tokens_[bytes] = static_cast<std::int32_t>(token);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = tokens_.find(std::string(1, static_cast<char>(byte)));
    if (found == tokens_.end()) fail(fmt::format("has no token for byte {}", byte));
    byte_tokens_[byte] = found->second;
  }
}

void Bpe::read_merges(std::string_view text, const std::string& where) {
  std::int64_t line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const auto fail = [&](const std::string& what) {
      throw UsageError(
          fmt::format("tokenizer '{}': merges.txt line {} {}", where, line_number, what));
    };
    const std::size_t space = line.find(' ');
    std::string left;
    std::string right;
    if (space == std::string_view::npos || !decode_visible(line.substr(0, space), left) ||
        !decode_visible(line.substr(space + 1), right)) {
      fail(fmt::format("is {}, not two token texts", quoted(std::string(line))));
    }
    const auto token_of = [&](const std::string& bytes) {
      const auto found = tokens_.find(bytes);
      if (found == tokens_.end())
        fail(fmt::format("needs {}, which vocab.json does not have", quoted(bytes)));
      return found->second;
    };
    merges_.emplace(Pair{token_of(left), token_of(right)},
                    Merge{static_cast<std::int32_t>(merges_.size()), token_of(left + right)});
  }
}

void Bpe::encode(std::string_view text, std::vector<std::int32_t>& tokens) const {
  for (const std::string_view word : bpe_words(text)) encode_word(word, tokens);
}

// Merges the pair of lowest rank, everywhere in the word, until no pair is in the list.
void Bpe::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  std::vector<std::int32_t> parts;
  for (const char byte : word) parts.push_back(byte_tokens_[static_cast<unsigned char>(byte)]);
  while (parts.size() > 1) {
    auto best = merges_.end();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = merges_.find({parts[i], parts[i + 1]});
      if (found == merges_.end()) continue;
      if (best == merges_.end() || found->second.rank < best->second.rank) best = found;
    }
    if (best == merges_.end()) break;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < parts.size(); ++kept) {
      const bool pair = i + 1 < parts.size() && Pair{parts[i], parts[i + 1]} == best->first;
      parts[kept] = pair ? best->second.token : parts[i];
      i += pair ? 2 : 1;
    }
    parts.resize(kept);
  }
  tokens.insert(tokens.end(), parts.begin(), parts.end());
}

std::string_view Bpe::text_of(std::int32_t token) const {
  if (token < 0 || static_cast<std::size_t>(token) >= texts_.size()) return {};
  return texts_[static_cast<std::size_t>(token)];
}

}  // namespace sinew::model
