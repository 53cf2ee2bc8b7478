// Any text as a collective schedule: refused in one line, or a schedule that survives its text form
// and gets a verdict. What is proved gives the contract's numbers when a plain interpreter runs it,
// needs the credits that are reported, and can be timed.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/matching.h"
#include "sched/order.h"
#include "sched/schedule.h"
#include "sched/simulate.h"
#include "sched/verify.h"
#include "tests/sched/interpreter.h"

namespace {

using namespace sinew::sched;

void check_numbers(const Schedule& schedule) {
  for (const Placement placement : {Placement::kInPlace, Placement::kOutOfPlace}) {
    Interpreter interpreter(schedule, placement, 1);
    CHECK(interpreter.run());
    CHECK(interpreter.right());
  }
}

void check_credits(const Schedule& schedule, const Facts& facts) {
  const Matching matching = match(schedule);
  const auto completes = [&](int credits, int window) {
    return order_steps(schedule, matching, {credits, window}).completes();
  };
  CHECK(completes(facts.credits, kUnlimited));
  CHECK(facts.credits == 0 || !completes(facts.credits - 1, kUnlimited));
  CHECK(facts.credits_in_order == kUnlimited || completes(facts.credits_in_order, 1));
}

void check_schedule(const Schedule& schedule) {
  CHECK(parse_schedule(print(schedule)) == schedule);
  // The proof costs world x chunks: large claims are left to the parser's bounds.
  if (schedule.contract.world > 64 || schedule.contract.chunks() > 1024) return;
  const Verdict verdict = verify(schedule);
  CHECK(verdict.failure.find('\n') == std::string::npos);
  if (!verdict.proved()) return;
  check_numbers(schedule);
  check_credits(schedule, verdict.facts);
  SimulateOptions options;
  options.bytes = 1000;
  options.segments = 2;
  const Topology topology = homogeneous(schedule.contract.world, {1e-6, 1e-9}, 1e-9);
  CHECK(std::isfinite(simulate(schedule, topology, options).seconds));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check_schedule(parse_schedule(std::string_view(reinterpret_cast<const char*>(data), size)));
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
