// Bpe: GPT-2's byte-pair encoding (Sennrich et al. 2016, Radford et al. 2019), from the two files
// that models of this kind come with: vocab.json (token text to number) and merges.txt (pairs, the
// most frequent first).
//
// Text is cut into words: the contractions 's 't 're 've 'm 'll 'd; an optional space and letters,
// or digits, or other visible characters; white space, of which the last character joins the word
// behind it. Each word's bytes are merged pair by pair, the earliest merge of the list first. Bytes
// that are no UTF-8 count as other visible characters, so that any text can be encoded and
// decode(encode(x)) == x.
//
// Threads: const objects may be shared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sinew::model {

// The words of a text, in order; together they are the text.
[[nodiscard]] std::vector<std::string_view> bpe_words(std::string_view text);

class Bpe {
 public:
  // Throws UsageError in one line naming the file and what is wrong in it.
  Bpe(std::string_view vocabulary_json, std::string_view merges, const std::string& where);
  // The files DIRECTORY/vocab.json and DIRECTORY/merges.txt, or encoder.json and vocab.bpe.
  [[nodiscard]] static Bpe load(const std::string& directory);

  // Tokens are 0 to vocabulary() - 1.
  [[nodiscard]] std::int64_t vocabulary() const { return static_cast<std::int64_t>(texts_.size()); }
  // The token of <|endoftext|>, -1 when there is none.
  [[nodiscard]] std::int32_t end_of_text() const { return end_of_text_; }

  // Appends the text's tokens.
  void encode(std::string_view text, std::vector<std::int32_t>& tokens) const;
  // The bytes of a token; empty for a number that is none.
  [[nodiscard]] std::string_view text_of(std::int32_t token) const;

 private:
  using Pair = std::pair<std::int32_t, std::int32_t>;
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t token = 0;
  };
  void read_vocabulary(std::string_view json, const std::string& where);
  void read_merges(std::string_view text, const std::string& where);
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;

  std::vector<std::string> texts_;  // by token, as bytes
  std::unordered_map<std::string, std::int32_t> tokens_;
  std::int32_t byte_tokens_[256] = {};
  std::map<Pair, Merge> merges_;
  std::int32_t end_of_text_ = -1;
};

}  // namespace sinew::model
