// Registrations of memory that callers lend for messages. One is found again while bytes of it are
// under way, in which time a caller may not free the memory, and never afterwards: the same address
// in another allocation is another registration.
//
// One may be kept beyond that, for what comes late: it names the pages that it was made for,
// whatever the caller does with their address meanwhile.
//
// Never does: wait. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "comm/transport/verbs_library.h"

namespace sinew::comm {

class VerbsRegions {
 public:
  struct Lent {
    std::unique_ptr<ibv_mr, VerbsDelete> region;
    const std::byte* begin = nullptr;
    std::int64_t size_bytes = 0;
    int access = 0;
    int uses = 0;   // blocks under way
    int keeps = 0;  // those, and what may come late
  };

  void open(ibv_pd* domain) { domain_ = domain; }
  // Null: the device or a limit refuses. likely_bytes: from data on, what is going to be asked for
  // next.
  [[nodiscard]] Lent* lend(const std::byte* data, std::int64_t size_bytes,
                           std::int64_t likely_bytes, int access);
  // Each lend() is followed by both, in this order.
  void end(Lent* lent);      // the block is where it should be
  void release(Lent* lent);  // and nothing comes late any more
  // No adapter may use any of it any more.
  void clear() { lent_.clear(); }
  [[nodiscard]] std::size_t count() const { return lent_.size(); }

 private:
  ibv_pd* domain_ = nullptr;
  std::list<Lent> lent_;
};

}  // namespace sinew::comm
