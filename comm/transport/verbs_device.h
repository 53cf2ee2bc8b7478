// An RDMA device and port as a rank uses them: chosen by name and GID, or the first that is active.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/transport/verbs_library.h"

namespace sinew::comm {

// Reads under way on a connection. Two large blocks keep any link busy. More of them queued before
// a slow one would take longer than the time after which an adapter believes its packets lost: 4
// MiB last 0.3 s at 100 Mbit/s.
inline constexpr int kMostReads = 2;

struct VerbsPort {
  std::string device;
  std::uint8_t port = 1;
  int gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  int most_requests = 0;  // in a queue
  int most_reads = 1;     // under way on a connection
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
