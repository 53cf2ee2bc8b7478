// Host memory: one array that several ranks of a machine map, for what all of them read and none
// should hold alone.
//
// Never does: guess from names which ranks share a machine: ranks that can open each other's
// memory do. Leaves nothing behind however a run ends: the memory has no name.
// Threads: one rank, one thread. Collective where it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/communicator.h"

namespace sinew::model {

// Collective: the ranks that can map memory of this one's, this one among them, in rank order.
[[nodiscard]] std::unique_ptr<comm::Communicator> ranks_of_host(comm::Communicator& world);

class HostMemory {
 public:
  HostMemory() = default;
  // Collective over `host`, a communicator of ranks_of_host(): zeroed memory of the first rank,
  // mapped by all. Throws Error on every rank when there is no room.
  HostMemory(comm::Communicator& host, std::int64_t size_bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t size_bytes() const { return static_cast<std::int64_t>(size_bytes_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace sinew::model
