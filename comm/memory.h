// Memory: how ranks obtain blocks that their peers map too. Threads of one process simply share the
// heap; the processes of one host share segments. This is all that differs between the transports
// `local` and `shm`.
//
// Never does: know what lies in a block.
// Threads: `share` is collective, one thread per rank; a Mapping may be released by any one thread.
// Invariants
//   1. A block is zero when share returns and all of it is backed: touching it later cannot fail.
//   2. When share returns, or a process dies inside it, nothing is left in the file system.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"

namespace sinew::comm {

// One rank's view of a block; unmapped (or, for threads, given up) on destruction.
class Mapping {
 public:
  using Release = void (*)(std::byte* data, std::size_t size_bytes, void* handle);
  Mapping() = default;
  Mapping(std::byte* data, std::size_t size_bytes, void* handle, Release release)
      : data_(data), size_bytes_(size_bytes), handle_(handle), release_(release) {}
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    Mapping moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Mapping() {
    if (data_ != nullptr) release_(data_, size_bytes_, handle_);
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  void swap(Mapping& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
  }
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  void* handle_ = nullptr;
  Release release_ = nullptr;
};

class Memory {
 public:
  virtual ~Memory() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;  // the transport's name
  // Whether any address of a peer can be read as it is.
  [[nodiscard]] virtual bool one_address_space() const = 0;
  // Collective. Every rank offers a block of its own `size_bytes` (0: none) and gets a view of each
  // rank's, in rank order; an empty one of ranks on other hosts. hosts: [world], equal for ranks of
  // one host. Throws Error, the same on all ranks, when a block cannot be reserved or mapped.
  [[nodiscard]] virtual std::vector<Mapping> share(Bootstrap& bootstrap, std::size_t size_bytes,
                                                   const std::vector<int>& hosts) = 0;
};

[[nodiscard]] std::unique_ptr<Memory> thread_memory();  // transport/local.cc
[[nodiscard]] std::unique_ptr<Memory> host_memory();    // transport/shm.cc

// Collective: the lowest rank of each rank's host, [world], equal on all ranks. Ranks are on one
// host when each of them has opened and read the memory of each other one.
[[nodiscard]] std::vector<int> find_hosts(Bootstrap& bootstrap);  // transport/hosts.cc

}  // namespace sinew::comm
