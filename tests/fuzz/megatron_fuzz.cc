// Any bytes as a Megatron index beside some data: every token is within the data, or the pair is
// refused in one line. The first byte says where the index ends and the data begins.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "model/token_formats.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data + 1, size - 1));
  const std::size_t data_bytes = std::min<std::size_t>(data[0], rest.size());
  const auto index = rest.first(rest.size() - data_bytes);
  try {
    const sinew::model::TokenRun run =
        sinew::model::read_megatron(index, rest.last(data_bytes), "fuzz");
    CHECK_LE(run.count, static_cast<std::int64_t>(data_bytes));
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
  return 0;
}
