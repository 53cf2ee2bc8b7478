// Registrations of memory that callers lend for messages. One lives while bytes of it are under
// way, in which time a caller may not free the memory, and is taken back with the last of them:
// none can outlive what it names, and the same address in another allocation is another
// registration.
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
    int uses = 0;
  };

  void open(ibv_pd* domain) { domain_ = domain; }
  // Null: the device or a limit refuses. likely_bytes: from data on, what is going to be asked for
  // next.
  [[nodiscard]] Lent* lend(const std::byte* data, std::int64_t size_bytes,
                           std::int64_t likely_bytes, int access);
  void give_back(Lent* lent);
  // No adapter may use any of it any more.
  void clear() { lent_.clear(); }
  [[nodiscard]] std::size_t count() const { return lent_.size(); }

 private:
  ibv_pd* domain_ = nullptr;
  std::list<Lent> lent_;
};

}  // namespace sinew::comm
