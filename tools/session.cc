#include "tools/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <vector>

#include "sched/base/error.h"
#include "tools/launcher.h"

namespace sinew::tools {
namespace {

struct Verdict {
  std::int32_t exit_code = 0;
  std::array<char, 1020> message = {};  // cut to fit; 0 at the end
};
static_assert(sizeof(Verdict) == 1024);

Verdict verdict_of(const std::function<void()>& check) {
  Verdict verdict;
  const auto refuse = [&](int exit_code, const char* message) {
    verdict.exit_code = exit_code;
    std::strncpy(verdict.message.data(), message, verdict.message.size() - 1);
  };
  try {
    check();
  } catch (const Error& error) {
    refuse(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    refuse(1, error.what());
  }
  return verdict;
}

}  // namespace

void agree(comm::Communicator& communicator, const std::function<void()>& check) {
  const Verdict mine = verdict_of(check);
  std::vector<Verdict> all(static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(&mine, all.data(), sizeof mine, DType::kU8);
  const auto failed = [](const Verdict& verdict) { return verdict.exit_code != 0; };
  const auto first = std::find_if(all.begin(), all.end(), failed);
  if (first == all.end()) return;

  // The first rank ends the run, so it waits until the others have read the verdict.
  std::uint8_t read = 1;
  if (communicator.rank() == 0) {
    for (int rank = 1; rank < communicator.world(); ++rank)
      communicator.recv(&read, 1, DType::kU8, rank);
  } else {
    communicator.send(&read, 1, DType::kU8, 0);
  }
  exit_together(communicator.rank(), fmt::format("sinew: {}", first->message.data()),
                first->exit_code);
}

}  // namespace sinew::tools
