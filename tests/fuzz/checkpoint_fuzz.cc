// Any text as a checkpoint's state.json: a state that survives being written, or refused in one
// line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "model/checkpoint.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sinew::model;
  try {
    const TrainingState state =
        parse_state(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
    CHECK(parse_state(print_state(state), "fuzz") == state);
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
