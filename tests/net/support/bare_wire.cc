#include "tests/net/support/bare_wire.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tests/net/support/wires.h"

namespace sinew::comm::testing {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

SharedCount::SharedCount()
    : count_(static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>),
                                                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                                 -1, 0))) {}

SharedCount::~SharedCount() { munmap(count_, sizeof *count_); }

void SharedCount::wait_for(int count) const {
  const auto start = steady_clock::now();
  while (count_->load() < count && seconds_since(start) < kPatienceS) usleep(1000);
}

BareWire::BareWire(Bootstrap& bootstrap)
    : layout(bootstrap.world()),
      slots(layout.size_bytes()),
      staging(layout.size_bytes()),
      peer(1 - bootstrap.rank()) {
  const std::string transport = transport_of("verbs", bootstrap.rank());
  const std::string device =
      transport.find(':') == std::string::npos ? "" : transport.substr(transport.find(':') + 1);
  std::vector<bool> reaches(static_cast<std::size_t>(bootstrap.world()), true);
  reaches[static_cast<std::size_t>(bootstrap.rank())] = false;
  for (const WireKind& kind : wire_kinds()) {
    if (kind.name != "verbs") continue;
    wire = kind.make({.bootstrap = &bootstrap,
                      .reaches = reaches,
                      .layout = &layout,
                      .slots = slots.data(),
                      .staging = staging.data(),
                      .sink = &heard,
                      .argument = device});
  }
}

void BareWire::await(const int* count, int wanted) {
  const auto start = steady_clock::now();
  while (*count < wanted && heard.text.empty() && seconds_since(start) < kPatienceS)
    wire->progress();
}

std::string BareWire::listen() {
  const auto start = steady_clock::now();
  while (heard.text.empty() && seconds_since(start) < kPatienceS) {
    wire->progress();
    wire->credit(peer, 0, 1);
    usleep(1000);
  }
  return heard.text.empty() ? "noticed nothing" : heard.text;
}

bool BareWire::offer() {
  const auto size = static_cast<std::int64_t>(block.size());
  return wire->post({.peer = peer, .data = block.data(), .size = size, .exposed_bytes = size}) !=
         Wire::Posted::kCopied;
}

bool BareWire::land() {
  return wire->land(peer, 0, 0, block.data(), static_cast<std::int64_t>(block.size()));
}

}  // namespace sinew::comm::testing
