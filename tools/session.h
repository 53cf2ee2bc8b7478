// Session: how a subcommand that measures or trains meets its ranks.
//
// Threads: one thread. Collective where it says so.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace sinew::tools {

// Collective: runs `check` on every rank; when it throws on any, all processes end with the exit
// code and the message of the lowest rank that failed, printed once. It does not return then, and
// unwinds nothing: a rank that unwound its communicator would fail the others while they still
// learn of the verdict.
void agree(comm::Communicator& communicator, const std::function<void()>& check);

// What --transport takes, for help.
[[nodiscard]] std::string transport_help();

}  // namespace sinew::tools
