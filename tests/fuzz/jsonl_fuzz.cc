// Any bytes as lines of JSON: each text's bytes and an end, or a refusal in one line.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/token_formats.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const sinew::model::TokenRun run =
        sinew::model::read_jsonl(std::as_bytes(std::span(data, size)), nullptr, "fuzz");
    // A text is shorter than the line that holds it.
    CHECK_LE(run.count, static_cast<std::int64_t>(size));
    CHECK_EQ(run.width, 1);
    CHECK(run.owned.back() == std::byte{0x0A});
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
