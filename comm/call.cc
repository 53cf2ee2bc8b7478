#include "comm/call.h"

#include <fmt/core.h>

#include "sched/collective/registry.h"

namespace sinew::comm {

namespace {

std::string collective_text(const CallInfo& call) {
  const auto op = static_cast<sched::Collective>(call.kind);
  const auto rows = sched::algorithms();
  const std::string_view algorithm =
      call.algorithm < rows.size() ? rows[call.algorithm].name : std::string_view("schedule");
  std::string text = fmt::format("{}/{}", sched::name_of(op), algorithm);
  if (op == sched::Collective::kBarrier) return text;
  text += fmt::format(" of {} {}", call.count, name_of(call.dtype));
  const sched::Contract contract{.op = op};
  if (contract.reduces()) text += fmt::format(", {}", name_of(call.reduce));
  if (contract.rooted()) text += fmt::format(", root {}", call.root);
  return text;
}

}  // namespace

std::string describe(const CallInfo& call) {
  std::string text;
  switch (call.kind) {
    case CallKind::kMessage:
      text =
          fmt::format("send or recv of {} {}, tag {}", call.count, name_of(call.dtype), call.tag);
      break;
    case CallKind::kSplit:
      return "split";
    case CallKind::kAllocate:
      return fmt::format("allocate of {} bytes", call.count);
    default:
      text = collective_text(call);
      break;
  }
  if (call.form == Form::kStarted && call.kind != CallKind::kMessage) text = "started " + text;
  return text;
}

}  // namespace sinew::comm
