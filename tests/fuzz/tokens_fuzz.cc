// Any bytes as a token file: every token it claims can be read, or it is refused in one line.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/data.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const sinew::model::Tokens tokens(std::as_bytes(std::span(data, size)), "fuzz");
    std::vector<std::int32_t> out(static_cast<std::size_t>(tokens.size()));
    // A 32-bit token of 2^31 and more belongs to no vocabulary: an Error, as in training.
    tokens.copy(0, tokens.size(), tokens.token_limit(), out.data());
    for (const std::int32_t token : out) CHECK_GE(token, 0);
  } catch (const sinew::Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
