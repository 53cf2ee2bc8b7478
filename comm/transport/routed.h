// RoutedTransport: one transport per peer. A communicator over several hosts maps some peers'
// memory and reaches the others by a wire.
//
// Never does: more than pass a call on. Threads: as its transports.
#pragma once

#include <algorithm>
#include <vector>

#include "comm/transport.h"

namespace sinew::comm {

class RoutedTransport final : public Transport {
 public:
  // routes: [world], by peer; null for the own rank.
  explicit RoutedTransport(std::string_view name, std::vector<Transport*> routes)
      : routes_(std::move(routes)) {
    traits_.name = name;
    for (const Transport* route : routes_) {
      if (route == nullptr) continue;
      const Traits& traits = route->traits();
      traits_.credits = std::max(traits_.credits, traits.credits);
      traits_.slot_bytes = std::max(traits_.slot_bytes, traits.slot_bytes);
      traits_.lands |= traits.lands;
    }
  }
  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] Sent send(int peer, int lane, std::uint64_t flag, const std::byte* data,
                          std::int64_t size_bytes, Source source) override {
    return route(peer).send(peer, lane, flag, data, size_bytes, source);
  }
  [[nodiscard]] bool released(int peer, int lane, std::uint64_t sequence) override {
    return route(peer).released(peer, lane, sequence);
  }
  [[nodiscard]] std::int64_t worthwhile_bytes(int peer, int lane) const override {
    return route(peer).worthwhile_bytes(peer, lane);
  }
  [[nodiscard]] bool peek(int peer, int lane, Message* message) override {
    return route(peer).peek(peer, lane, message);
  }
  [[nodiscard]] bool read(int peer, const Message& message, std::int64_t offset, std::byte* target,
                          std::int64_t size_bytes) override {
    return route(peer).read(peer, message, offset, target, size_bytes);
  }
  void release(int peer, int lane) override { route(peer).release(peer, lane); }
  void expect(int peer, int lane, const Wanted& now, const Wanted& then) override {
    route(peer).expect(peer, lane, now, then);
  }

 private:
  [[nodiscard]] Transport& route(int peer) const {
    return *routes_[static_cast<std::size_t>(peer)];
  }
  std::vector<Transport*> routes_;
  Traits traits_;
};

}  // namespace sinew::comm
