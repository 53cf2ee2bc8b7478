#include "tests/net/support/wires.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "comm/transport/wire.h"
#include "sched/base/text.h"

namespace sinew::comm::testing {

std::vector<std::string> wires_here() {
  std::vector<std::string> names;
  for (const WireKind& kind : wire_kinds()) {
    const char* only = std::getenv("SINEW_NET_WIRES");
    const std::string reason = only != nullptr && only != kind.name
                                   ? std::string(kind.name) + ": not named by SINEW_NET_WIRES"
                                   : kind.missing({});
    if (reason.empty()) {
      names.emplace_back(kind.name);
    } else {
      std::printf("left out here: %s\n", reason.c_str());
    }
  }
  return names;
}

bool has_wire(const std::string& name) {
  const std::vector<std::string> names = wires_here();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string transport_of(const std::string& wire, int rank) {
  const char* devices = std::getenv("SINEW_NET_DEVICES");
  if (wire != "verbs" || devices == nullptr) return wire;
  const std::vector<std::string_view> names = split(devices, ',');
  return wire + ":" + std::string(names[static_cast<std::size_t>(rank) % names.size()]);
}

std::vector<Outcome> run_over(const std::string& wire, int world, double timeout_s,
                              const std::function<std::string(Communicator&)>& body) {
  return run_processes(world, [&](Bootstrap& bootstrap) {
    const auto communicator = Communicator::from_bootstrap(
        bootstrap, {.transport = transport_of(wire, bootstrap.rank()), .timeout_s = timeout_s});
    return body(*communicator);
  });
}

}  // namespace sinew::comm::testing
