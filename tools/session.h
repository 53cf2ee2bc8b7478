// Session: how a subcommand that measures or trains meets its ranks.
//
// Threads: one thread. Collective where it says so.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tools/args.h"

namespace sinew::tools {

// Collective: runs `check` on every rank; when it throws on any, all processes end with the exit
// code and the message of the lowest rank that failed, printed once. It does not return then, and
// unwinds nothing: a rank that unwound its communicator would fail the others while they still
// learn of the verdict.
void agree(comm::Communicator& communicator, const std::function<void()>& check);

// Collective: every rank must have been given the same options; those named in `own` may differ, as
// paths do between hosts. Ends as agree() does, naming the first rank and option that differ.
void require_same_options(comm::Communicator& communicator, const Args& args,
                          const std::vector<std::string>& own = {});

// Collective: the first rank, and which of `values`, that is not as on rank 0; all ranks give
// equally many.
struct Differing {
  int rank = 0;
  std::size_t index = 0;
};
[[nodiscard]] std::optional<Differing> first_difference(comm::Communicator& communicator,
                                                        std::span<const std::uint64_t> values);

// For runs that measure collectives alone: ranks that outnumber the cores stay on one each
// (comm/placement.h), unless the user's environment says otherwise. Before the first communicator.
void keep_ranks_on_cores();

// What --transport takes, for help.
[[nodiscard]] std::string transport_help();

}  // namespace sinew::tools
