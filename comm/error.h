// comm::Error: something outside the program went wrong in a collective: a peer is gone, late, or
// called something else. Thrown at setup and at wait(); it poisons the communicator and every rank
// learns of it.
#pragma once

#include <cstdint>
#include <string>

#include "sched/base/error.h"

namespace sinew::comm {

enum class Cause : std::uint8_t {
  kTimeout,
  kMismatch,
  kPeerGone,
  kPoisoned,
  kTransport,
  kResource
};

class Error : public sinew::Error {
 public:
  Error(Cause cause, int rank, int peer, const std::string& what)
      : sinew::Error(what), cause_(cause), rank_(rank), peer_(peer) {}
  [[nodiscard]] Cause cause() const { return cause_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int peer() const { return peer_; }  // -1 when no single peer is to blame

 private:
  Cause cause_;
  int rank_;
  int peer_;
};

}  // namespace sinew::comm
