// Formats of token data: each read from a file written here byte by byte, and refused in one line
// that names what was found.
#include "model/token_formats.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "model/data.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

template <typename V>
void put(std::string& bytes, V value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::vector<std::int32_t> all(const Tokens& tokens) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), tokens.token_limit(), out.data());
  return out;
}

std::string message(const std::string& path, const DataReading& reading = {}) {
  return test::usage_error_of([&] { const Tokens tokens(path, reading); });
}

using Sequence = std::vector<std::int32_t>;

// What Megatron's preprocessing writes: the data, then lengths, byte pointers and documents, of
// which there is one for each sequence.
struct Megatron {
  std::string data;
  std::string index;
};
template <typename V>
Megatron megatron(std::uint8_t code, const std::vector<Sequence>& sequences) {
  Megatron files;
  files.index.assign("MMIDIDX\0\0", 9);
  put(files.index, std::uint64_t{1});
  put(files.index, code);
  put(files.index, static_cast<std::uint64_t>(sequences.size()));
  put(files.index, static_cast<std::uint64_t>(sequences.size() + 1));
  std::string pointers;
  for (const Sequence& sequence : sequences) {
    put(files.index, static_cast<std::int32_t>(sequence.size()));
    put(pointers, static_cast<std::int64_t>(files.data.size()));
    for (const std::int32_t token : sequence) put(files.data, static_cast<V>(token));
  }
  files.index += pointers;
  for (std::size_t i = 0; i <= sequences.size(); ++i)
    put(files.index, static_cast<std::int64_t>(i));
  return files;
}

TEST(TokenFormats, NanogptIsUint16WithoutAHeader) {
  const test::ScratchDirectory directory;
  std::string bytes;
  for (const int token : {7, 50256, 65535}) put(bytes, static_cast<std::uint16_t>(token));
  const Tokens tokens(directory.write("train.bin", bytes));
  EXPECT_EQ(all(tokens), (Sequence{7, 50256, 65535}));
  EXPECT_EQ(tokens.format(), "nanoGPT uint16");
  EXPECT_NE(message(directory.write("odd.bin", bytes + "x")).find("7 bytes are no whole number"),
            std::string::npos);
  // Asked for, the same file is text.
  EXPECT_EQ(Tokens(directory.path("odd.bin"), {"text", ""}).size(), 7);
}

TEST(TokenFormats, MegatronOfEveryWidthIsReadInTheOrderOfItsIndex) {
  const test::ScratchDirectory directory;
  const std::vector<Sequence> sequences = {{5, 6, 7}, {}, {100, 101}, {1}};
  const Sequence expected = {5, 6, 7, 100, 101, 1};
  const auto read = [&](const Megatron& files) {
    const std::string path = directory.write("corpus.bin", files.data);
    directory.write("corpus.idx", files.index);
    return all(Tokens(path));
  };
  EXPECT_EQ(read(megatron<std::uint8_t>(1, sequences)), expected);
  EXPECT_EQ(read(megatron<std::int16_t>(3, sequences)), expected);
  EXPECT_EQ(read(megatron<std::int32_t>(4, sequences)), expected);
  EXPECT_EQ(read(megatron<std::int64_t>(5, sequences)), expected);
  EXPECT_EQ(read(megatron<std::uint16_t>(8, sequences)), expected);

  // Sequences in another order than the data's, as after a shuffle.
  Megatron swapped = megatron<std::uint16_t>(8, {{1, 2}, {3, 4}});
  const std::int64_t pointers[] = {4, 0};
  std::memcpy(swapped.index.data() + 34 + 8, pointers, sizeof pointers);
  EXPECT_EQ(read(swapped), (Sequence{3, 4, 1, 2}));
}

TEST(TokenFormats, MegatronDamageIsSaidInPlainWords) {
  const test::ScratchDirectory directory;
  const Megatron good = megatron<std::uint16_t>(8, {{1, 2}, {3, 4}});
  const auto refused = [&](std::size_t at, const auto& value) {
    Megatron bad = good;
    std::memcpy(bad.index.data() + at, &value, sizeof value);
    directory.write("bad.idx", bad.index);
    return message(directory.write("bad.bin", bad.data));
  };
  EXPECT_EQ(refused(0, 'M'), "");
  EXPECT_NE(refused(0, 'X').find("does not begin with MMIDIDX"), std::string::npos);
  EXPECT_NE(refused(9, std::uint64_t{2}).find("index version 2; legal value: 1"),
            std::string::npos);
  EXPECT_NE(refused(17, std::uint8_t{6}).find("type code 6; legal values: 1 (uint8)"),
            std::string::npos);
  EXPECT_NE(refused(18, std::uint64_t{3}).find("3 sequences and 3 documents do not fill"),
            std::string::npos);
  EXPECT_NE(refused(18, std::numeric_limits<std::uint64_t>::max()).find("do not fill"),
            std::string::npos);
  EXPECT_NE(refused(34, std::int32_t{-1}).find("sequence 0 (-1 tokens"), std::string::npos);
  EXPECT_NE(refused(42, std::int64_t{7}).find("not within the 8 bytes"), std::string::npos);
  EXPECT_NE(refused(50, std::int64_t{-2}).find("not within"), std::string::npos);
  const std::string lonely = directory.write("lonely.bin", good.data);
  EXPECT_NE(message(lonely, {"megatron", ""}).find("lonely.idx"), std::string::npos);
  // A token that is negative.
  const Megatron negative = megatron<std::int64_t>(5, {{-5}});
  directory.write("negative.idx", negative.index);
  EXPECT_NE(message(directory.write("negative.bin", negative.data)).find("is no token"),
            std::string::npos);
}

TEST(TokenFormats, JsonlIsTheTextsOfItsLinesEachEnded) {
  const test::ScratchDirectory directory;
  const std::string lines =
      "{\"text\": \"ab\", \"url\": 1}\n\n  \n{\"id\": 3, \"text\": \"\\u00e9\"}\r\n{\"text\": "
      "\"\"}";
  const Tokens tokens(directory.write("some.jsonl", lines));
  EXPECT_EQ(all(tokens), (Sequence{'a', 'b', '\n', 0xC3, 0xA9, '\n', '\n'}));
  const auto refused = [&](const std::string& line) {
    return message(directory.write("bad.jsonl", "{\"text\": \"a\"}\n" + line + "\n"));
  };
  for (const char* line :
       {"{", "7", "[]", "{\"test\": \"a\"}", "{\"text\": 3}", "{\"text\": \"\xFF\"}"})
    EXPECT_NE(refused(line).find("line 2 is no JSON object with a \"text\""), std::string::npos)
        << line;
  EXPECT_NE(message(directory.write("none.jsonl", "\n\n")).find("no document"), std::string::npos);
}

TEST(TokenFormats, PackedFilesAreNotTextUnlessTheUserSaysSo) {
  const test::ScratchDirectory directory;
  for (const auto& [magic, name] : std::vector<std::pair<std::string, std::string>>{
           {"\x1f\x8b", "gzip"}, {"PK\x03\x04", "zip"}, {"PAR1", "parquet"}}) {
    const std::string path = directory.write("data", magic + std::string(100, 'x'));
    EXPECT_NE(message(path).find("is a " + name + " file"), std::string::npos) << message(path);
    const Tokens tokens(path, {.format = "text", .tokenizer = {}});
    EXPECT_EQ(tokens.size(), static_cast<std::int64_t>(100 + magic.size()));
  }
}

TEST(TokenFormats, AutoGoesByContentThenByName) {
  const auto found = [](const char* path, const std::string& content, bool has_index) {
    return find_token_format(path, std::as_bytes(std::span(content)), has_index);
  };
  std::string llmc(1024, '\0');
  const std::int32_t magic = 20240520;
  std::memcpy(llmc.data(), &magic, sizeof magic);
  EXPECT_EQ(found("x.bin", llmc, false), TokenFormat::kLlmc);
  EXPECT_EQ(found("x.txt", llmc, false), TokenFormat::kLlmc);
  EXPECT_EQ(found("x.bin", "abc", false), TokenFormat::kNanogpt);
  EXPECT_EQ(found("x.bin", "abc", true), TokenFormat::kMegatron);
  EXPECT_EQ(found("x.jsonl", "abc", false), TokenFormat::kJsonl);
  EXPECT_EQ(found("x.txt", "a", true), TokenFormat::kText);
  EXPECT_NE(test::usage_error_of([] {
              static_cast<void>(parse_token_format("x"));
            }).find("legal values: auto, text, jsonl, llmc, nanogpt, megatron"),
            std::string::npos);
}

TEST(TokenFormats, ATokenizerIsForTextOnly) {
  const test::ScratchDirectory directory;
  const std::string path = directory.write("tokens.bin", "abcd");
  EXPECT_NE(message(path, {"auto", directory.path()}).find("a tokenizer is for text"),
            std::string::npos);
  EXPECT_NE(
      message(directory.write("a.txt", "abcd"), {"auto", directory.path()}).find("vocab.json"),
      std::string::npos);
}

}  // namespace
}  // namespace sinew::model
