// Any bytes as a token file: every token it claims can be read, or one UsageError.
#include <cstdint>
#include <span>
#include <vector>

#include "model/data.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const sinew::model::Tokens tokens(file, "fuzz");
    std::vector<std::int32_t> out(static_cast<std::size_t>(tokens.size()));
    tokens.copy(0, tokens.size(), tokens.token_limit(), out.data());
  } catch (const sinew::UsageError&) {
  } catch (const sinew::Error&) {
    // A 32-bit token at or above 2^31 belongs to no vocabulary.
  }
  return 0;
}
