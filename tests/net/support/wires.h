// The wires that this machine has, as the tests use them.
//
// SINEW_NET_DEVICES, names joined by commas, gives each rank a device in turn; SINEW_NET_WIRES
// names the only wire to use.
#pragma once

#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "tests/comm/support/processes.h"

namespace sinew::comm::testing {

// A deadline that only a fault can reach, on a machine that runs much else besides.
inline constexpr double kPatienceS = 100;

// Names of the wires that work here; those that do not are printed with the reason.
[[nodiscard]] std::vector<std::string> wires_here();

[[nodiscard]] bool has_wire(const std::string& name);

// What option `transport` a rank gives for a wire.
[[nodiscard]] std::string transport_of(const std::string& wire, int rank);

// Runs body on `world` processes that reach each other by the wire only, and returns what each
// said; an exception counts as said.
[[nodiscard]] std::vector<Outcome> run_over(const std::string& wire, int world, double timeout_s,
                                            const std::function<std::string(Communicator&)>& body);

}  // namespace sinew::comm::testing
