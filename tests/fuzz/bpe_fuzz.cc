// Any bytes as a tokenizer's files, then as text for the tokenizer of a corpus file: a refusal in
// one line, or text that comes back as it was. The input is vocab.json, merges.txt and a text, each
// ended by a zero byte.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/bpe.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace {

std::string_view take(std::string_view& rest) {
  const std::string_view part = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(part.size() < rest.size() ? part.size() + 1 : rest.size());
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view vocabulary = take(rest);
  const std::string_view merges = take(rest);
  std::size_t length = 0;
  for (const std::string_view word : sinew::model::bpe_words(rest)) {
    CHECK(!word.empty());
    CHECK(word.data() == rest.data() + length);
    length += word.size();
  }
  CHECK_EQ(length, rest.size());
  try {
    const sinew::model::Bpe bpe(vocabulary, merges, "fuzz");
    std::vector<std::int32_t> tokens;
    bpe.encode(rest, tokens);
    std::string back;
    for (const std::int32_t token : tokens) back += bpe.text_of(token);
    CHECK(back == rest);
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
