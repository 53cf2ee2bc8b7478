#include "comm/transport/choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "comm/error.h"
#include "comm/memory.h"
#include "sched/base/error.h"

namespace sinew::comm {

namespace {

struct Request {
  bool maps = true;                // pairs whose memory opens use it
  bool wires = true;               // other pairs may use a wire
  const WireKind* wire = nullptr;  // null: the first that works
  std::string argument;
};

std::string legal_values() {
  std::string text = "auto, shm, local";
  for (const WireKind& kind : wire_kinds()) text += fmt::format(", {0}, shm+{0}", kind.name);
  return text + "; verbs takes a device: verbs:DEVICE or verbs:DEVICE:GID";
}

Request parse(std::string_view text) {
  Request request;
  if (text == "auto") return request;
  if (text == "shm") {
    request.wires = false;
    return request;
  }
  std::string_view rest = text;
  request.maps = rest.starts_with("shm+");
  if (request.maps) rest.remove_prefix(4);
  const std::string_view name = rest.substr(0, rest.find(':'));
  if (name.size() < rest.size()) request.argument = rest.substr(name.size() + 1);
  for (const WireKind& kind : wire_kinds()) {
    if (kind.name == name) request.wire = &kind;
  }
  if (request.wire == nullptr) {
    throw UsageError(
        fmt::format("transport '{}' is unknown; legal values: {}", text, legal_values()));
  }
  return request;
}

// The first wire that every rank can use.
const WireKind* agree_on_wire(Bootstrap& bootstrap) {
  std::string reasons;
  for (const WireKind& kind : wire_kinds()) {
    const std::string reason = kind.missing({});
    const auto all = bootstrap.exchange(static_cast<int>(reason.empty()));
    if (std::find(all.begin(), all.end(), 0) == all.end()) return &kind;
    const auto first = std::find(all.begin(), all.end(), 0) - all.begin();
    reasons += fmt::format("; rank {} cannot use {}{}", first, kind.name,
                           reason.empty() ? "" : " (" + reason + ")");
  }
  throw Error(
      Cause::kResource, bootstrap.rank(), -1,
      "setup: not all ranks can open each other's memory and no network joins them" + reasons);
}

}  // namespace

TransportChoice choose_transport(Bootstrap& bootstrap, std::string_view text) {
  TransportChoice choice;
  if (text == "auto") {
    const char* variable = std::getenv(kTransportVariable);
    if (variable != nullptr && variable[0] != '\0') text = variable;
  }
  if (text == "local") {
    choice.local = true;
    choice.hosts.assign(static_cast<std::size_t>(bootstrap.world()), 0);
    return choice;
  }
  const Request request = parse(text);
  const auto one_host = [&] {
    return std::all_of(choice.hosts.begin(), choice.hosts.end(),
                       [](int host) { return host == 0; });
  };
  if (!request.wires) {
    // Without a wire there is only the attempt, and its error says what failed.
    choice.hosts.assign(static_cast<std::size_t>(bootstrap.world()), 0);
  } else if (request.maps) {
    choice.hosts = find_hosts(bootstrap);
  } else {
    for (int rank = 0; rank < bootstrap.world(); ++rank) choice.hosts.push_back(rank);
  }
  if (one_host()) return choice;
  choice.wire = request.wire;
  choice.argument = request.argument;
  if (choice.wire == nullptr) {
    choice.wire = agree_on_wire(bootstrap);
  } else {
    agree_on_setup(bootstrap, choice.wire->missing(choice.argument));
  }
  return choice;
}

int count_hosts(std::vector<int> hosts) {
  std::sort(hosts.begin(), hosts.end());
  return static_cast<int>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
}

int ranks_per_host(const std::vector<int>& hosts) {
  const auto world = static_cast<int>(hosts.size());
  int group = 1;
  while (group < world && hosts[static_cast<std::size_t>(group)] == hosts[0]) ++group;
  if (group == 1 || group == world || world % group != 0) return 0;
  for (int rank = 0; rank < world; ++rank) {
    if (hosts[static_cast<std::size_t>(rank)] !=
        hosts[static_cast<std::size_t>(rank / group * group)])
      return 0;
    if (rank >= group && rank % group == 0 &&
        hosts[static_cast<std::size_t>(rank)] == hosts[static_cast<std::size_t>(rank - 1)])
      return 0;
  }
  return group;
}

}  // namespace sinew::comm
