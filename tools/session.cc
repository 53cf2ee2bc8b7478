#include "tools/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "comm/placement.h"
#include "comm/transport/wire.h"
#include "model/agree.h"
#include "sched/base/error.h"
#include "tools/launcher.h"

namespace sinew::tools {

void keep_ranks_on_cores() { setenv(comm::kSpreadVariable, "1", 0); }

std::string transport_help() {
  std::string text = "transport between the ranks: auto, shm, local";
  for (const comm::WireKind& kind : comm::wire_kinds())
    text += fmt::format(", {0}, shm+{0}", kind.name);
  return text;
}

std::optional<Differing> first_difference(comm::Communicator& communicator,
                                          std::span<const std::uint64_t> values) {
  std::vector<std::uint64_t> all(values.size() * static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(values.data(), all.data(), static_cast<std::int64_t>(values.size()),
                          DType::kU64);
  for (std::size_t i = values.size(); i < all.size(); ++i) {
    const std::size_t index = i % values.size();
    if (all[i] != all[index]) return Differing{static_cast<int>(i / values.size()), index};
  }
  return std::nullopt;
}

void require_same_options(comm::Communicator& communicator, const Args& args,
                          const std::vector<std::string>& own) {
  const std::vector<Args::Given> options = args.all_given();
  std::vector<std::uint64_t> hashes;
  for (const Args::Given& option : options) {
    const bool may_differ = std::ranges::find(own, option.name) != own.end();
    hashes.push_back(may_differ ? 0 : std::hash<std::string>()(option.text));
  }
  const std::optional<Differing> other = first_difference(communicator, hashes);
  agree(communicator, [&] {
    if (!other) return;
    throw UsageError(
        fmt::format("rank {} was given another {} than rank 0: all ranks of a run need the same "
                    "options",
                    other->rank, options[other->index].name));
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
