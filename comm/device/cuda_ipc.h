// The transport cuda_ipc: one block of device memory per rank that kernels and copy engines of all
// ranks of a machine reach.
//
// Protocol: every rank reserves its block, clears it and exchanges a card over the bootstrap: the
// handle under which other processes map the block (cudaIpcGetMemHandle; on the twin the name of a
// memory file), the device's bus address, and which process owns it. A rank maps the blocks of
// other processes (cudaIpcOpenMemHandle) and takes the plain pointer of those in its own, where
// peer access makes them reachable. A second exchange agrees: when any rank could not map any
// other, all of them say which and why. What lies in the blocks and who may write it is
// comm/device/links.h's.
//
// Several ranks may share a device. Ranks must see each other's devices (one CUDA_VISIBLE_DEVICES
// for all) and, in containers, share the IPC and PID namespaces.
//
// Never does: move data or synchronise kernels; reach another host.
// Threads: one object per rank, one thread at a time.
// Source: CUDA C++ Programming Guide, "Interprocess communication" and "Peer-to-peer memory
// access".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bootstrap.h"
#include "kernels/device/runtime.h"

namespace sinew::comm {

inline constexpr std::string_view kCudaIpcName = "cuda_ipc";

class PeerMemory {
 public:
  PeerMemory() = default;
  // Collective: size_bytes, equal on all ranks, of zeroed memory on each rank's selected device.
  // Nobody can write a block before it is cleared. Throws comm::Error on all ranks when one fails.
  PeerMemory(Bootstrap& bootstrap, std::size_t size_bytes);
  // Collective: when it returns nobody maps this rank's block. Needed before destruction, unless a
  // peer is dead.
  void close(Bootstrap& bootstrap);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return static_cast<int>(peers_.size()); }
  // The block of that rank as this rank's device addresses it.
  [[nodiscard]] char* of(int rank) const { return at(rank).data; }
  [[nodiscard]] device::LinkKind link(int rank) const { return at(rank).link; }
  // Whether a warp's aligned store of 128 bytes reaches every peer as one: not over PCIe.
  [[nodiscard]] bool lines_arrive_whole() const;
  // "rank 0 on NVIDIA H200 (0000:17:00.0) reaches ranks 1, 2 over NVLink, rank 3 over PCIe".
  [[nodiscard]] std::string describe() const;
  // "(process 1234) is dead", or empty while it lives.
  [[nodiscard]] std::string gone(int rank) const;

 private:
  struct Peer {
    char* data = nullptr;
    device::LinkKind link = device::LinkKind::kNone;
    int pid = 0;
    std::uint64_t start_time = 0;
  };
  struct Card;
  [[nodiscard]] const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  void map(const std::vector<Card>& cards);
  void map_one(const Card& own, const Card& card, Peer& peer);

  int rank_ = 0;
  std::string place_;  // this rank's device
  device::Memory memory_;
  std::vector<device::Mapping> mappings_;
  std::vector<Peer> peers_;
};

}  // namespace sinew::comm
