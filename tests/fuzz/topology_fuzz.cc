// Any text as a topology: refused in one line, or a topology that survives its text form.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const sinew::sched::Topology topology = sinew::sched::parse_topology(text);
    CHECK(sinew::sched::print(sinew::sched::parse_topology(sinew::sched::print(topology))) ==
          sinew::sched::print(topology));
  } catch (const sinew::UsageError&) {
  }
  return 0;
}
