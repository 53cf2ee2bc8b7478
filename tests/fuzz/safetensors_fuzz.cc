// Any bytes as a safetensors file: an index whose every tensor lies inside the file, or one
// UsageError.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/safetensors.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  try {
    const sinew::model::SafetensorsIndex index = sinew::model::parse_safetensors(file, "fuzz");
    for (const auto& [name, entry] : index.tensors) {
      const std::int64_t bytes =
          entry.count() * static_cast<std::int64_t>(sinew::size_of(entry.dtype));
      const bool inside = entry.begin >= 0 && entry.end - entry.begin == bytes &&
                          index.data_begin + entry.end <= static_cast<std::int64_t>(size);
      CHECK(inside);
    }
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
