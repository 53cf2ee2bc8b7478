// Any text as a model file: a shape that is legal and survives being written, or refused in one
// line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/config.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sinew::model;
  try {
    const Config config =
        parse_config(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    validate(config);
    CHECK(parse_config(to_json(config), "fuzz") == config);
    CHECK_GT(config.parameters(), 0);
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
