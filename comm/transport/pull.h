// Pull: copies out of a peer process's own memory (process_vm_readv, known as CMA): one copy where
// a slot takes two. The kernel may forbid it (Yama's ptrace_scope, a container's seccomp profile),
// so every rank tries it on every peer once, at set-up, and a pair for which it fails uses slots.
//
// Never does: decide which messages travel like this, or wait.
// Threads: set up collectively; then one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/bootstrap.h"

namespace sinew::comm {

class Pull {
 public:
  // Collective. wanted: [world], the peers this rank might read. Cost: three small exchanges.
  Pull(Bootstrap& bootstrap, const std::vector<bool>& wanted);

  // Whether `peer` may be handed an address of this rank, because it reads it.
  [[nodiscard]] bool reads_me(int peer) const { return reads_me_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] bool used() const { return used_; }  // by any pair of ranks, alike on all ranks
  // Why a peer's memory cannot be read from here, in one clause; empty when all can.
  [[nodiscard]] const std::string& denial() const { return denial_; }

  // Copies from the peer's address space; false when that part of it cannot be read.
  [[nodiscard]] bool read(int peer, std::uint64_t address, std::byte* target,
                          std::int64_t size_bytes) const;

 private:
  std::vector<pid_t> processes_;  // [world], 0: unknown
  std::vector<bool> reads_me_;    // [world]
  bool used_ = false;
  std::string denial_;
};

}  // namespace sinew::comm
