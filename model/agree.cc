#include "model/agree.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "sched/base/error.h"

namespace sinew::model {

namespace {

struct Outcome {
  std::int32_t exit_code = 0;
  std::array<char, 1020> message = {};  // ends with a 0
};
static_assert(sizeof(Outcome) == 1024);

Outcome outcome_of(const std::function<void()>& action) {
  Outcome outcome;
  const auto failed = [&](int exit_code, const char* message) {
    outcome.exit_code = exit_code;
    std::strncpy(outcome.message.data(), message, outcome.message.size() - 1);
  };
  try {
    action();
  } catch (const Error& error) {
    failed(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    failed(1, error.what());
  }
  return outcome;
}

}  // namespace

void agree(comm::Communicator& communicator, const std::function<void()>& action) {
  const Outcome mine = outcome_of(action);
  std::vector<Outcome> all(static_cast<std::size_t>(communicator.world()));
  communicator.all_gather(&mine, all.data(), sizeof mine, DType::kU8);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Outcome& o) { return o.exit_code != 0; });
  if (first == all.end()) return;
  const std::string message = first->message.data();
  if (first->exit_code == UsageError("").exit_code()) throw UsageError(message);
  throw Error(message);
}

}  // namespace sinew::model
