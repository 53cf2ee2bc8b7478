// Any text as a topology: refused in one line, or a topology that survives its text form and whose
// links have finite, not negative costs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/topology.h"

namespace {

using namespace sinew::sched;

void check_topology(const Topology& topology) {
  CHECK(parse_topology(print(topology)) == topology);
  for (int rank = 0; rank < std::min(topology.world, 8); ++rank)
    CHECK_LT(topology.cores_of(rank), static_cast<int>(topology.cores.size()));
  for (int from = 0; from < std::min(topology.world, 8); ++from) {
    for (int to = 0; to < std::min(topology.world, 8); ++to) {
      const Link link = topology.link(from, to);
      CHECK(std::isfinite(link.latency_s) && link.latency_s >= 0);
      CHECK(std::isfinite(link.cost_s_per_byte) && link.cost_s_per_byte >= 0);
      const Link work = topology.work(from, to);
      CHECK(std::isfinite(work.latency_s) && work.latency_s >= 0);
      CHECK(std::isfinite(work.cost_s_per_byte) && work.cost_s_per_byte >= 0);
      for (const int share : topology.shares_of(from, to)) {
        CHECK_LT(static_cast<std::size_t>(share), topology.shares.size());
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    check_topology(parse_topology(std::string_view(reinterpret_cast<const char*>(data), size)));
  } catch (const sinew::UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
