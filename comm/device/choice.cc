#include "comm/device/choice.h"

#include <array>

namespace sinew::comm {

namespace {

const sched::Algorithm& choose_row(const Resident& resident, const ResidentAsk& ask) {
  if (ask.algorithm != "auto") return sched::find_algorithm(ask.op, ask.algorithm);
  if (ask.op == sched::Collective::kAllReduce && ask.full_bytes <= kLinesBytes) {
    return sched::find_algorithm(ask.op, ask.full_bytes <= kOneShotBytes ? "one_shot" : "two_shot");
  }
  // Rings use every link in both directions all the time; else the first row of the table that
  // runs.
  const sched::Algorithm* found = nullptr;
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (row.op != ask.op) continue;
    if (found != nullptr && row.name != "ring") continue;
    if (resident.takes(row, ask.root)) found = &row;
  }
  if (found != nullptr) return *found;
  throw UsageError("no algorithm of " + std::string(name_of(ask.op)) + " runs with " +
                   std::to_string(resident.world()) + " ranks on these slots");
}

Protocol choose_protocol(const Resident& resident, const ResidentAsk& ask) {
  if (ask.protocol != "auto") return parse_protocol(ask.protocol);
  if (ask.full_bytes <= kLowLatencyBytes) return Protocol::kLowLatency;
  const bool lines = ask.full_bytes <= kLinesBytes && resident.transport().lines_arrive_whole();
  return lines ? Protocol::kLines : Protocol::kSimple;
}

}  // namespace

Protocol parse_protocol(std::string_view name) {
  std::string legal = "auto";
  for (const Protocol protocol : kProtocols) {
    if (name_of(protocol) == name) return protocol;
    legal += ", " + std::string(name_of(protocol));
  }
  throw UsageError("protocol '" + std::string(name) + "' is unknown; legal values: " + legal);
}

ResidentChoice choose(const Resident& resident, const ResidentAsk& ask) {
  ResidentChoice choice;
  choice.row = &choose_row(resident, ask);
  if (!resident.takes(*choice.row, ask.root)) {
    throw UsageError(std::string(name_of(ask.op)) + " by " + std::string(choice.row->name) +
                     " does not run with " + std::to_string(resident.world()) +
                     " ranks on these slots");
  }
  choice.protocol = choose_protocol(resident, ask);
  if (ask.protocol != "auto" && choice.protocol != Protocol::kLowLatency) return choice;
  for (const SmallKernel& kernel : small_kernels()) {
    if (kernel.op != ask.op || kernel.algorithm != choice.row->name) continue;
    choice.kernel = &kernel;
    choice.protocol = Protocol::kLowLatency;  // the one it is written for
  }
  return choice;
}

void run(Resident& resident, const ResidentChoice& choice, int root, const ResidentWork& work,
         device::Stream& stream) {
  if (choice.kernel != nullptr) {
    resident.run(*choice.kernel, work, stream);
  } else {
    resident.run(*choice.row, root, choice.protocol, work, stream);
  }
}

}  // namespace sinew::comm
