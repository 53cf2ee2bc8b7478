// Any text as a pipeline schedule: refused in one line, or a schedule whose text form, proof,
// credits and simulation agree with each other.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/passes/communication.h"
#include "sched/pipeline/schedule.h"
#include "sched/pipeline/simulate.h"
#include "sched/pipeline/streams.h"
#include "sched/pipeline/verify.h"

namespace {

using namespace sinew::sched;

bool finishes(const PipeSchedule& schedule, int credits) {
  const auto stops =
      run_programs(schedule, streams_of(schedule), static_cast<std::size_t>(credits));
  for (std::size_t rank = 0; rank < stops.size(); ++rank) {
    if (stops[rank] < schedule.actions[rank].size()) return false;
  }
  return true;
}

void check_proved(const PipeSchedule& schedule) {
  const PipeVerdict verdict = verify(schedule);
  CHECK(verdict.proved());
  CHECK(finishes(schedule, verdict.facts.credits));
  CHECK(verdict.facts.credits == 0 || !finishes(schedule, verdict.facts.credits - 1));
  const PipeSimulation simulation = simulate(schedule, PipeTimes{});
  CHECK(std::isfinite(simulation.makespan));
  CHECK_GE(simulation.makespan, simulation.ideal);
}

void check_schedule(const PipeSchedule& schedule) {
  CHECK(parse_pipe_schedule(print(schedule)) == schedule);
  const PipeVerdict verdict = verify(schedule);
  CHECK(verdict.failure.find('\n') == std::string::npos);
  if (verdict.proved()) check_proved(schedule);
  // What the pass makes of computations can be wrong only where they are.
  const PipeSchedule completed = insert_messages(schedule);
  CHECK(insert_messages(completed) == completed);
  if (verdict.proved()) check_proved(completed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check_schedule(
        parse_pipe_schedule(std::string_view(reinterpret_cast<const char*>(data), size)));
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
