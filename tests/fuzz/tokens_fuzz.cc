// Any bytes as a token file in llm.c's and nanoGPT's formats: every token it claims can be read, or
// it is refused in one line.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "model/token_formats.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace {

template <typename Read>
void try_reading(Read&& read) {
  try {
    const sinew::model::TokenRun run = read();
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::uint32_t token = 0;
      std::memcpy(&token, run.tokens + i * run.width, static_cast<std::size_t>(run.width));
      sum += token;
    }
    CHECK_LE(sum, static_cast<std::uint64_t>(run.count) << 32);
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try_reading([&] { return sinew::model::read_llmc(bytes, "fuzz"); });
  try_reading([&] { return sinew::model::read_nanogpt(bytes, "fuzz"); });
  try_reading([&] { return sinew::model::read_text(bytes, nullptr); });
  return 0;
}
