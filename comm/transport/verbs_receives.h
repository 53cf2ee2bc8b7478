// What takes in the announcements of writes (their immediate data): a receive each. All peers of a
// rank draw from one queue where the adapter shares one between connections, large enough for what
// the credits of all peers together allow, so that no peer can leave it dry for another. Where the
// adapter does not, or shares less than that, each connection has a queue of its own.
//
// SINEW_VERBS_SHARED_RECEIVES is the most that one shared queue may hold, where that is less than
// the adapter's own limit; 0: nothing is shared.
//
// Never does: wait. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/transport/verbs_library.h"
#include "comm/transport/wire.h"

namespace sinew::comm {

class VerbsReceives {
 public:
  // Posted again this many at a time: one doorbell for all.
  static constexpr int kAtOnce = 16;
  // A peer that keeps to its credits has at most so many announcements on their way: per lane
  // kDepth blocks or offers, words that as many of the own were read, and credits for as many, in
  // halves; of notices each has its own.
  static constexpr int kOfPeer =
      kNetLanes * (2 * NetLayout::kDepth + 2) + NetLayout::kDepth - 2 + kAtOnce;

  // Posts the receives of a shared queue. Where there is none, description() says why.
  void open(ibv_pd* domain, const std::string& device, const ibv_device_attr& limits, int peers);
  // Before a connection is made: where it takes its receives from.
  void attach(ibv_qp_init_attr& wish) const;
  // The first receives of a new connection. Returns errno.
  [[nodiscard]] int begin(ibv_qp* connection) const;
  // After `*owed` of the connection grew by one: posts again when it is time to. Returns errno.
  [[nodiscard]] int used(ibv_qp* connection, int* owed);

  [[nodiscard]] bool shared() const { return queue_ != nullptr; }
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  [[nodiscard]] int post(ibv_qp* connection, int count) const;

  std::unique_ptr<ibv_srq, VerbsDelete> queue_;
  int owed_ = 0;  // to the shared queue
  std::string description_;
};

}  // namespace sinew::comm
