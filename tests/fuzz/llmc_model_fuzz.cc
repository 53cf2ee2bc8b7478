// Any bytes as a model file of llm.c: every tensor that its header promises can be read, or it is
// refused in one line.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/llmc_model.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header =
        sinew::model::parse_llmc_model(std::as_bytes(std::span(data, size)), "fuzz");
    const std::int64_t parameters =
        header.config.parameters() +
        (header.padded_vocabulary - header.config.vocabulary) * header.config.channels;
    CHECK_EQ(1024 + parameters * static_cast<std::int64_t>(sinew::size_of(header.dtype)),
             static_cast<std::int64_t>(size));
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
