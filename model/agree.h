// agree: what one rank alone may find wrong (a file, a full disk) ends the run on every rank alike.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace sinew::model {

// Collective: runs `action`, which must not communicate, on every rank; when it throws on any,
// every rank throws the error of the lowest of them, UsageError or Error as it was, its text cut to
// 1000 bytes.
void agree(comm::Communicator& communicator, const std::function<void()>& action);

}  // namespace sinew::model
