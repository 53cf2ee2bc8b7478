// Any bytes as a token file in llm.c's and nanoGPT's formats: every token it claims can be read, or
// it is refused in one line.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/token_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  sinew::fuzz::try_reading([&] { return sinew::model::read_llmc(bytes, "fuzz"); });
  sinew::fuzz::try_reading([&] { return sinew::model::read_nanogpt(bytes, "fuzz"); });
  sinew::fuzz::try_reading([&] { return sinew::model::read_text(bytes, nullptr); });
  return 0;
}
