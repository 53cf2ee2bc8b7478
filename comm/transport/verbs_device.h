// An RDMA device and port as a rank uses them: chosen by name and GID, or the first that is active.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/transport/verbs_library.h"

namespace sinew::comm {

// A block is read in pieces, of which a connection has so many under way: a rank that looks late
// leaves the link something to do. More bytes queued before a slow read would take longer than the
// time after which an adapter believes its packets lost: 512 KiB last 42 ms at 100 Mbit/s.
inline constexpr int kMostReads = 4;
inline constexpr std::uint32_t kReadBytes = 128 << 10;

struct VerbsPort {
  std::string device;
  std::uint8_t port = 1;
  int gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  int most_reads = 1;  // under way on a connection
  ibv_device_attr limits{};
};

// argument: "", DEVICE or DEVICE:GID, GID an index. Fills port and context; returns why it cannot,
// in one line that names what there is, or nothing.
[[nodiscard]] std::string open_verbs(std::string_view argument, VerbsContext& context,
                                     VerbsPort& port);

// "::ffff:10.0.0.2"
[[nodiscard]] std::string gid_text(const std::uint8_t* gid);

// What a failed completion means and what to try.
[[nodiscard]] std::string_view verbs_advice(ibv_wc_status status);

}  // namespace sinew::comm
