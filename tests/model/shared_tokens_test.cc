// Tokens that the ranks of a machine convert together: the same as one rank's, once in memory.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "model/data.h"
#include "model/host_memory.h"
#include "sched/base/philox.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

// A tokenizer whose merges reach over letters, digits, signs and the blanks before them.
std::string write_tokenizer(const test::ScratchDirectory& directory) {
  const auto visible = [](int byte) {
    // GPT-2's table: bytes that print stand for themselves, the others from U+0100 on.
    const auto prints = [](int b) {
      return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    };
    int code = byte;
    if (!prints(byte)) {
      code = 256;
      for (int b = 0; b < byte; ++b) code += prints(b) ? 0 : 1;
    }
    std::string text;
    if (code < 0x80) return std::string(1, static_cast<char>(code));
    text += static_cast<char>(0xC0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3F));
    return text;
  };
  std::string vocabulary = "{";
  std::string merges = "#version: 0.2\n";
  int token = 0;
  const auto add = [&](const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    vocabulary += (token > 0 ? ", \"" : "\"") + escaped + "\": " + std::to_string(token);
    ++token;
  };
  for (int byte = 0; byte < 256; ++byte) add(visible(byte));
  const std::string space = visible(' ');
  const std::string newline = visible('\n');
  for (const auto& [left, right] :
       std::vector<std::pair<std::string, std::string>>{{space, "a"},
                                                        {"a", "b"},
                                                        {space + "a", "b"},
                                                        {"1", "2"},
                                                        {space, space},
                                                        {newline, newline},
                                                        {space + space, space},
                                                        {",", "."},
                                                        {"'", "s"}}) {
    add(left + right);
    merges += left + " " + right + "\n";
  }
  add("<|endoftext|>");
  std::filesystem::create_directories(directory.path("tokenizer"));
  directory.write("tokenizer/vocab.json", vocabulary + "}");
  directory.write("tokenizer/merges.txt", merges);
  return directory.path("tokenizer");
}

// Words, signs, runs of blanks, characters of several bytes and bytes that are none.
std::string some_text(std::uint64_t seed, std::size_t pieces) {
  const Philox random(seed, 3);
  const std::array<const char*, 14> parts = {"ab", "a",  " ",    "  ", "\n",       "\n\n", "12",
                                             ",.", "'s", "it's", "\t", "\xC3\xA9", "\xFF", "b 1"};
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) text += parts[random.words(i)[0] % parts.size()];
  return text;
}

std::vector<std::int32_t> all(const Tokens& tokens) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), tokens.token_limit(), out.data());
  return out;
}

// Every rank of every number of them sees what one alone does, whatever the file.
void expect_shared(const std::string& path, const DataReading& reading) {
  const Tokens alone(path, reading);
  const std::vector<std::int32_t> expected = all(alone);
  for (const int world : {1, 2, 3, 4, 7}) {
    test::run_ranks(world, [&](comm::Communicator& ranks) {
      const Tokens shared(ranks, path, reading);
      EXPECT_EQ(all(shared), expected) << path << " on " << world;
      EXPECT_EQ(shared.format(), alone.format());
      EXPECT_EQ(shared.token_limit(), alone.token_limit());
      EXPECT_EQ(shared.fingerprint(), alone.fingerprint());
    });
  }
}

TEST(SharedTokens, AreThoseOfOneRankHoweverManyConvertThem) {
  const test::ScratchDirectory directory;
  const std::string tokenizer = write_tokenizer(directory);
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::string text = some_text(seed, seed < 4 ? seed + 1 : 300 * seed);
    expect_shared(directory.write("some.txt", text), {"auto", tokenizer});
    expect_shared(directory.path("some.txt"), {});
    std::string lines;
    for (std::uint64_t line = 0; line < seed * seed; ++line)
      lines +=
          line % 5 == 3 ? "\n" : "{\"text\": \"a b" + std::string(line * 7 % 90, 'b') + "\"}\n";
    lines += "{\"text\": \"last\"}";
    expect_shared(directory.write("some.jsonl", lines), {});
    expect_shared(directory.path("some.jsonl"), {"auto", tokenizer});
  }
  // Nothing to cut at.
  expect_shared(directory.write("one.txt", std::string(500, 'b')), {"auto", tokenizer});
}

// The ranks of one machine find each other, and what one writes all read.
TEST(SharedTokens, LieInMemoryThatAllRanksMap) {
  for (const int world : {1, 2, 5}) {
    test::run_ranks(world, [&](comm::Communicator& ranks) {
      const auto host = ranks_of_host(ranks);
      ASSERT_EQ(host->world(), world);
      EXPECT_EQ(host->rank(), ranks.rank());
      HostMemory memory(*host, world);
      memory.data()[ranks.rank()] = static_cast<std::byte>(ranks.rank() + 1);
      host->barrier();
      for (int rank = 0; rank < world; ++rank)
        EXPECT_EQ(memory.data()[rank], static_cast<std::byte>(rank + 1));
      host->barrier();
    });
  }
}

TEST(SharedTokens, WhatIsWrongInAnyPartEndsAllRanksAndNamesTheLineOfTheFile) {
  const test::ScratchDirectory directory;
  std::string lines;
  for (int line = 1; line <= 40; ++line)
    lines += line == 33 ? "{\"txt\": 1}\n" : "{\"text\": \"abc\"}\n";
  const std::string path = directory.write("bad.jsonl", lines);
  std::mutex mutex;
  std::multiset<std::string> messages;
  test::run_ranks(4, [&](comm::Communicator& ranks) {
    const std::string message = test::usage_error_of([&] { const Tokens tokens(ranks, path, {}); });
    const std::lock_guard<std::mutex> lock(mutex);
    messages.insert(message);
  });
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages.count(*messages.begin()), 4U);
  EXPECT_NE(messages.begin()->find("line 33 is no JSON object"), std::string::npos);
  const std::string none = directory.write("none.jsonl", "\n\n\n\n");
  test::run_ranks(3, [&](comm::Communicator& ranks) {
    EXPECT_NE(
        test::usage_error_of([&] { const Tokens tokens(ranks, none, {}); }).find("no document"),
        std::string::npos);
    EXPECT_NE(test::usage_error_of([&] {
                const Tokens tokens(ranks, "/no/such/file", {});
              }).find("cannot be opened"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace sinew::model
