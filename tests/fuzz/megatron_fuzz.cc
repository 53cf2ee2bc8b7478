// Any bytes as a Megatron index beside some data: every token is within the data, or the pair is
// refused in one line. The first byte says where the index ends and the data begins.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/token_run.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto rest = std::as_bytes(std::span(data + 1, size - 1));
  const std::size_t data_bytes = std::min<std::size_t>(data[0], rest.size());
  const auto index = rest.first(rest.size() - data_bytes);
  sinew::fuzz::try_reading([&] {
    sinew::model::TokenRun run = sinew::model::read_megatron(index, rest.last(data_bytes), "fuzz");
    CHECK_LE(run.count, static_cast<std::int64_t>(data_bytes));
    return run;
  });
  return 0;
}
