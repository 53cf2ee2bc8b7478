// A wire over verbs without a communicator above it, and what ranks that are processes need to wait
// for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/transport/wire.h"

namespace sinew::comm::testing {

[[nodiscard]] double seconds_since(std::chrono::steady_clock::time_point start);

// A count that processes share.
class SharedCount {
 public:
  SharedCount();
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;
  ~SharedCount();
  void add() const { count_->fetch_add(1); }
  void wait_for(int count) const;

 private:
  std::atomic<int>* count_;
};

// What a wire says.
struct Heard final : WireSink {
  void arrived(int, int, int, std::uint64_t, std::int64_t) override { ++arrivals; }
  // Not said by verbs: adapters write into slots themselves.
  void brought(int, int, int, std::uint64_t, std::span<const std::byte>, int) override {}
  void offered(int, int, int, std::uint64_t, std::int64_t) override { ++offers; }
  void credited(int, int, int count) override { credits += count; }
  void sent(int, int, int) override { ++ends; }
  void broken(int, const std::string& why) override { text = why; }
  std::string text;
  int offers = 0;
  int arrivals = 0;
  int credits = 0;
  int ends = 0;
};

// One rank with a wire over verbs to all others, and the memory that it uses.
struct BareWire {
  explicit BareWire(Bootstrap& bootstrap);

  // Until *count is what it should be, or the wire is broken.
  void await(const int* count, int wanted);
  // Until the wire is broken; says something from time to time, as ranks that wait do.
  std::string listen();
  // Offers the block to the peer; and reads what the peer offers into it.
  bool offer();
  bool land();

  NetLayout layout;
  std::vector<std::byte> block = std::vector<std::byte>(NetLayout::kOfferBytes);
  std::vector<std::byte> slots;
  std::vector<std::byte> staging;
  int peer;  // the other one of two
  Heard heard;
  std::unique_ptr<Wire> wire;
};

}  // namespace sinew::comm::testing
