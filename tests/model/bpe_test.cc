// GPT-2's byte pairs: words, merges in order, every text comes back, bad files in one line.
#include "model/bpe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "model/unicode.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

std::string utf8(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// How the files write a byte.
std::string visible(int byte) {
  unsigned next = 256;
  for (int i = 0; i <= byte; ++i) {
    const bool own = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
    if (i == byte) return utf8(own ? static_cast<unsigned>(i) : next);
    if (!own) ++next;
  }
  return {};
}

struct Files {
  std::string vocabulary;
  std::string merges;
};

// All bytes, then a token per merge.
Files make_files(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[visible(byte)] = byte;
  std::string text = "#version: 0.2\n";
  int next = 256;
  for (const auto& [left, right] : merges) {
    vocabulary[left + right] = next++;
    text += left + " " + right + "\n";
  }
  vocabulary["<|endoftext|>"] = next;
  return {vocabulary.dump(), text};
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string_view word : bpe_words(text)) words.emplace_back(word);
  return words;
}

TEST(Bpe, WordsAreThoseOfGpt2) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words_of("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(words_of("I'm you'll don't 'tis"),
            (Words{"I", "'m", " you", "'ll", " don", "'t", " '", "tis"}));
  EXPECT_EQ(words_of("a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(words_of("a\n\nb  "), (Words{"a", "\n", "\n", "b", "  "}));
  EXPECT_EQ(words_of("x=12, y!"), (Words{"x", "=", "12", ",", " y", "!"}));
  EXPECT_EQ(words_of(" \t x"), (Words{" \t", " x"}));
  EXPECT_EQ(words_of("gr\u00fc\u00df \u0434\u0430 \u4e2d\u0663"),
            (Words{"gr\u00fc\u00df", " \u0434\u0430", " \u4e2d", "\u0663"}));
  EXPECT_EQ(words_of("a\u00a0b"), (Words{"a", "\u00a0", "b"}));
  EXPECT_EQ(words_of(""), Words{});
}

// Random texts of letters, digits, marks, white space of many scripts.
TEST(Bpe, WordsAreThoseOfTheRegularExpression) {
  const auto pairs =
      nlohmann::json::parse(test::read_file(SINEW_SOURCE_DIR "/tests/golden/bpe_words.json"));
  EXPECT_EQ(pairs.size(), 400U);
  for (const auto& pair : pairs)
    EXPECT_EQ(words_of(pair[0].get<std::string>()), pair[1].get<std::vector<std::string>>());
}

TEST(Bpe, TheEarliestMergeComesFirstEverywhereInTheWord) {
  const std::string space = visible(' ');
  const Files files = make_files({{"l", "o"}, {"lo", "w"}, {"e", "r"}, {space, "low"}, {"o", "w"}});
  const Bpe bpe(files.vocabulary, files.merges, "here");
  std::vector<std::int32_t> tokens;
  bpe.encode("lower low ow lolo", tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{257, 258, 259, ' ', 260, ' ', 256, 256}));
  EXPECT_EQ(bpe.end_of_text(), 261);
  EXPECT_EQ(bpe.vocabulary(), 262);
  EXPECT_EQ(bpe.text_of(259), " low");
  EXPECT_EQ(bpe.text_of(-1), "");
}

TEST(Bpe, EveryTextComesBackWhateverItsBytes) {
  const Files files = make_files({{"a", "b"}, {"ab", "ab"}, {visible(0xC3), visible(0xA9)}});
  const Bpe bpe(files.vocabulary, files.merges, "here");
  std::mt19937 random(3);
  const std::string alphabet =
      "ab \n'\xC3\xA9\xE4\xB8\xAD\xFF\xF0"
      "9st";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (unsigned i = 0; i < random() % 40; ++i)
      text += round % 2 == 0 ? alphabet[random() % alphabet.size()] : static_cast<char>(random());
    std::vector<std::int32_t> tokens;
    bpe.encode(text, tokens);
    std::string back;
    for (const std::int32_t token : tokens) back += bpe.text_of(token);
    EXPECT_EQ(back, text);
  }
}

TEST(Bpe, BadFilesAreOneLine) {
  const Files good = make_files({{"a", "b"}});
  const auto message = [](const std::string& vocabulary, const std::string& merges) {
    return test::usage_error_of([&] { const Bpe bpe(vocabulary, merges, "here"); });
  };
  EXPECT_EQ(message(good.vocabulary, good.merges), "");
  EXPECT_NE(message("[]", good.merges).find("is no JSON object"), std::string::npos);
  EXPECT_NE(message("{\"a\": 0}", "").find("has no token for byte"), std::string::npos);
  EXPECT_NE(message("{\"a\": 1}", "").find("the number 1; legal values: 0 to 0, each once"),
            std::string::npos);
  EXPECT_NE(message("{\"a\": 0, \"b\": 0}", "").find("legal values: 0 to 1, each once"),
            std::string::npos);
  EXPECT_NE(message("{\"a\": -1}", "").find("the number -1"), std::string::npos);
  EXPECT_NE(message(good.vocabulary, "a\n").find("line 1 is \"a\""), std::string::npos);
  EXPECT_NE(message(good.vocabulary, "#version\nq z\n").find("line 2 needs \"qz\""),
            std::string::npos);
  EXPECT_NE(test::usage_error_of([] { static_cast<void>(Bpe::load("/no/such")); }), "");
}

TEST(Unicode, ClassesAndBrokenBytes) {
  EXPECT_TRUE(is_letter('a') && is_letter(0xFC) && is_letter(0x4E2D) && !is_letter('1'));
  EXPECT_TRUE(is_number('7') && is_number(0x663) && is_number(0xBD) && !is_number('a'));
  EXPECT_TRUE(is_space(' ') && is_space(0xA0) && is_space(0x3000) && !is_space(0x200B));
  EXPECT_EQ(next_character("\u4e2d").code, 0x4E2DU);
  for (const char* broken : {"\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE4\xB8", "\x80"})
    EXPECT_EQ(next_character(broken).code, kNoCharacter);
}

}  // namespace
}  // namespace sinew::model
