#include "tools/session.h"

#include <fmt/format.h>

#include <algorithm>

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

std::vector<int> ranks_that_differ(comm::Communicator& communicator, std::uint64_t value) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(&value, values.data(), 1, DType::kU64);
  std::vector<int> ranks;
  for (int rank = 1; rank < communicator.world(); ++rank) {
    if (values[static_cast<std::size_t>(rank)] != values[0]) ranks.push_back(rank);
  }
  return ranks;
}

void require_same_options(comm::Communicator& communicator, const Args& args,
                          const std::vector<std::string>& own) {
  const std::vector<Args::Given> options = args.all_given();
  std::vector<std::uint64_t> mine;
  for (const Args::Given& option : options) mine.push_back(std::hash<std::string>()(option.text));
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(mine.data(), all.data(), static_cast<std::int64_t>(mine.size()),
                          DType::kU64);
  agree(communicator, [&] {
    for (std::size_t i = mine.size(); i < all.size(); ++i) {
      const std::string& name = options[i % mine.size()].name;
      if (all[i] == all[i % mine.size()] || std::ranges::find(own, name) != own.end()) continue;
      throw UsageError(
          fmt::format("rank {} was given another {} than rank 0: all ranks of a run need the same "
                      "options",
                      i / mine.size(), name));
    }
  });
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
