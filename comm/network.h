// Network: what stands in for the shared table between ranks of different hosts. Rows, the poison
// and the leaving of a rank travel as notices and are put into the table of each host, so that
// everything that reads the table works alike.
//
// A waiting rank tells its row from time to time: the others see where it stands, and a connection
// over which nothing comes back is found broken although nobody had anything to send.
//
// Never does: wait longer than the bounds below.
// Threads: any; one at a time by the transport's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/roster.h"
#include "comm/transport/net.h"

namespace sinew::comm {

class Network;

// The networks of a communicator and of all that was split from it. A library may still hold bytes
// of a call that has returned, and peers wait for credits and answers: whoever waits anywhere in
// the family keeps all of it going.
class NetworkFamily {
 public:
  void add(Network& network);
  void remove(Network& network);
  void poll_others(const Network& caller);  // moves bytes only
  void hear_all();                          // and takes in notices
 private:
  std::mutex mutex_;
  std::vector<Network*> networks_;
};

class Network {
 public:
  // A sleeper hears no doorbell from another host, so waits yield this long before the first sleep.
  static constexpr std::int64_t kYieldNs = 20'000'000;
  // A look at a network takes 0.3 us, more than ten times one at memory: about 50 us before the
  // first yield. Whoever spins longer may keep from its core the kernel's thread that brings the
  // answer, as that of soft RDMA adapters.
  static constexpr int kSpins = 150;

  // Collective. roster: of the ranks of this host, and outlives this.
  // family: of the communicator that this one is split from; null: of none.
  Network(const NetPlace& place, Roster& roster, std::shared_ptr<NetworkFamily> family);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  [[nodiscard]] NetTransport& transport() { return transport_; }
  [[nodiscard]] const std::shared_ptr<NetworkFamily>& family() const { return family_; }

  // The caller holds the mutex of transport(): moves bytes and takes in the notices.
  void hear();

  // These take the mutex.
  void tell_row();  // if it is time to
  void tell_row_now();
  void tell_leaving();
  void tell_poison(Cause cause, int peer, const std::string& text);
  [[nodiscard]] bool settled();

  // A peer whose connection broke long enough ago that its own last word must have come, if there
  // was one. why: in words.
  [[nodiscard]] int lost_peer(std::string* why);

 private:
  enum Kind : std::uint64_t { kRow = 1, kLeaving = 2, kPoison = 3 };
  void take(int peer, std::uint64_t kind, std::span<const std::byte> text);
  void tell(Kind kind, std::span<const std::byte> text, NetTransport::Urgency urgency);

  Roster& roster_;
  std::shared_ptr<NetworkFamily> family_;
  NetTransport transport_;
  std::int64_t told_ns_ = 0;
  std::int64_t broken_ns_ = 0;
};

}  // namespace sinew::comm
