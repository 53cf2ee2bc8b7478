// Any bytes as a model file or a checkpoint's state: accepted or one UsageError, never undefined
// behaviour.
#include <cstdint>
#include <string_view>

#include "model/checkpoint.h"
#include "model/config.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const sinew::model::Config config = sinew::model::parse_config(text, "fuzz");
    // What is accepted survives being written and read again.
    CHECK(sinew::model::parse_config(sinew::model::to_json(config), "fuzz") == config);
  } catch (const sinew::UsageError&) {
  }
  try {
    static_cast<void>(sinew::model::parse_state(text, "fuzz"));
  } catch (const sinew::UsageError&) {
  }
  return 0;
}
