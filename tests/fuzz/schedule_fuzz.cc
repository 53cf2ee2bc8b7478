// Any text as a collective schedule: refused in one line, or a schedule that survives its text form
// and gets a verdict, proof or counterexample, without undefined behaviour.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/schedule.h"
#include "sched/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const sinew::sched::Schedule schedule = sinew::sched::parse_schedule(text);
    CHECK(sinew::sched::parse_schedule(sinew::sched::print(schedule)) == schedule);
    // The proof costs world x chunks: large claims are left to the parser's bounds.
    if (schedule.contract.world <= 64 && schedule.contract.chunks() <= 1024) {
      static_cast<void>(sinew::sched::verify(schedule));
    }
  } catch (const sinew::UsageError&) {
  }
  return 0;
}
