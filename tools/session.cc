#include "tools/session.h"

#include <fmt/format.h>

#include "comm/transport/wire.h"
#include "model/agree.h"
#include "sched/base/error.h"
#include "tools/launcher.h"

namespace sinew::tools {

std::string transport_help() {
  std::string text = "transport between the ranks: auto, shm, local";
  for (const comm::WireKind& kind : comm::wire_kinds())
    text += fmt::format(", {0}, shm+{0}", kind.name);
  return text;
}

void agree(comm::Communicator& communicator, const std::function<void()>& check) {
  std::string message;
  int exit_code = 0;
  try {
    model::agree(communicator, check);
    return;
  } catch (const comm::Error&) {
    throw;  // the communicator's own: there is no verdict
  } catch (const Error& error) {
    message = error.what();
    exit_code = error.exit_code();
  }
  // The first rank ends the run, so it waits until the others have read the verdict.
  std::uint8_t read = 1;
  if (communicator.rank() == 0) {
    for (int rank = 1; rank < communicator.world(); ++rank)
      communicator.recv(&read, 1, DType::kU8, rank);
  } else {
    communicator.send(&read, 1, DType::kU8, 0);
  }
  exit_together(communicator.rank(), fmt::format("sinew: {}", message), exit_code);
}

}  // namespace sinew::tools
