#include "comm/call.h"

#include <fmt/core.h>

#include "sched/collective/registry.h"

namespace sinew::comm {

namespace {

std::string collective_text(const CallInfo& call) {
  const auto op = static_cast<sched::Collective>(call.kind);
  const auto rows = sched::every_algorithm();
  const std::string_view algorithm =
      call.algorithm < rows.size() ? rows[call.algorithm].name : std::string_view("schedule");
  const bool parts = call.algorithm < rows.size() && call.tag != 0;
  std::string text = fmt::format("{}{}/{}", sched::name_of(op), parts ? "_v" : "", algorithm);
  if (op == sched::Collective::kBarrier) return text;
  if (parts && call.tag == CallInfo::kOwnParts)
    return text + fmt::format(" of {}", name_of(call.dtype));
  text += fmt::format(" of {} {}", call.count, name_of(call.dtype));
  if (parts) text += fmt::format(" in parts #{:04x}", call.tag);
  const sched::Contract contract{.op = op};
  if (contract.reduces()) text += fmt::format(", {}", name_of(call.reduce));
  if (contract.rooted()) text += fmt::format(", root {}", call.root);
  return text;
}

}  // namespace

std::uint16_t tag_of_parts(const std::int64_t* counts, int world) {
  std::uint64_t hash = 0;
  for (int rank = 0; rank < world; ++rank)
    hash = (hash ^ static_cast<std::uint64_t>(counts[rank])) * 0x9e3779b97f4a7c15ULL + 1;
  return static_cast<std::uint16_t>(1 + (hash >> 32) % (CallInfo::kOwnParts - 1));
}

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
