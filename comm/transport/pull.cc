#include "comm/transport/pull.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <span>

#include <fmt/core.h>

namespace sinew::comm {

namespace {

// A process number means something else behind another PID namespace: random words tell.
struct Sign {
  std::uint64_t words[2];
};
struct Offer {
  std::int64_t process;
  std::uint64_t address;
  Sign sign;
};

bool copy_from(pid_t process, std::uint64_t address, std::byte* target, std::int64_t size_bytes) {
  while (size_bytes > 0) {
    const iovec local{target, static_cast<std::size_t>(size_bytes)};
    const iovec remote{reinterpret_cast<void*>(address), static_cast<std::size_t>(size_bytes)};
    const ssize_t copied = process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (copied <= 0) return false;
    target += copied;
    address += static_cast<std::uint64_t>(copied);
    size_bytes -= copied;
  }
  return true;
}

}  // namespace

Pull::Pull(Bootstrap& bootstrap, const std::vector<bool>& wanted) {
  const auto world = static_cast<std::size_t>(bootstrap.world());
  const auto rank = static_cast<std::size_t>(bootstrap.rank());
  Sign sign{};
  std::random_device random;
  for (std::uint64_t& word : sign.words) word = std::uint64_t{random()} << 32 | random();
  const std::vector<Offer> offers =
      bootstrap.exchange(Offer{getpid(), reinterpret_cast<std::uintptr_t>(&sign), sign});
  std::vector<std::uint8_t> reads(world, 0);
  for (std::size_t peer = 0; peer < world; ++peer) {
    const Offer& offer = offers[peer];
    processes_.push_back(static_cast<pid_t>(offer.process));
    if (!wanted[peer] || peer == rank) continue;
    Sign found{};
    errno = 0;
    const bool read = copy_from(processes_[peer], offer.address,
                                reinterpret_cast<std::byte*>(&found), sizeof found);
    reads[peer] = read && std::memcmp(&found, &offer.sign, sizeof found) == 0;
    if (reads[peer] == 0 && denial_.empty()) {
      denial_ = fmt::format("rank {} cannot read rank {}'s memory: {}", rank, peer,
                            read ? "another process has its number here" : std::strerror(errno));
    }
  }
  // Also keeps `sign` in place until all have looked at it.
  std::vector<std::uint8_t> all(world * world);
  bootstrap.all_gather(std::as_bytes(std::span(reads)), reinterpret_cast<std::byte*>(all.data()));
  for (std::size_t peer = 0; peer < world; ++peer)
    reads_me_.push_back(all[peer * world + rank] != 0);
  for (const std::uint8_t one : all) used_ |= one != 0;
}

bool Pull::read(int peer, std::uint64_t address, std::byte* target, std::int64_t size_bytes) const {
  return copy_from(processes_[static_cast<std::size_t>(peer)], address, target, size_bytes);
}

}  // namespace sinew::comm
