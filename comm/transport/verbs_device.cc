#include "comm/transport/verbs_device.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

namespace sinew::comm {

namespace {

struct DeviceList {
  int count = 0;
  ibv_device** devices = verbs().get_device_list(&count);
  DeviceList() = default;
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices != nullptr) verbs().free_device_list(devices);
  }
  [[nodiscard]] std::string names() const {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ", ", verbs().get_device_name(devices[i]));
    return text;
  }
};

bool is_set(const ibv_gid& gid) { return gid.global.interface_id != 0; }

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

// Routable and with an address a person knows comes first; then routable; then whatever is set.
int rank_of(const ibv_gid_entry& entry) {
  if (!is_set(entry.gid)) return 0;
  if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) return 1;
  return is_ipv4(entry.gid) ? 3 : 2;
}

std::string choose_gid(ibv_context* context, int count, std::string_view wanted, VerbsPort& port) {
  int best = 0;
  std::string there;
  int index = -1;
  if (!wanted.empty()) {
    const auto [end, code] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
    if (code != std::errc() || end != wanted.data() + wanted.size()) index = count;
  }
  for (int i = 0; i < count; ++i) {
    ibv_gid_entry entry{};
    if (verbs().query_gid_ex(context, port.port, static_cast<std::uint32_t>(i), &entry, 0,
                             sizeof entry) != 0)
      continue;
    if (!is_set(entry.gid)) continue;
    there += fmt::format("{}{} ({})", there.empty() ? "" : ", ", i, gid_text(entry.gid.raw));
    const int rank = rank_of(entry);
    if (wanted.empty() ? rank <= best : i != index) continue;
    best = rank;
    port.gid_index = i;
    port.gid = entry.gid;
  }
  if (best > 0) return {};
  if (wanted.empty()) {
    return fmt::format("verbs: device {} port {} has no GID; give its network interface an address",
                       port.device, port.port);
  }
  return fmt::format("verbs: device {} has no GID {}; legal values: {}", port.device, wanted,
                     there);
}

std::string open_one(ibv_device* device, std::string_view gid, VerbsContext& context,
                     VerbsPort& port) {
  port.device = verbs().get_device_name(device);
  context.reset(verbs().open_device(device));
  if (context == nullptr) {
    return fmt::format(
        "verbs: cannot open device {}: {}; its file in /dev/infiniband must be "
        "readable and writable",
        port.device, std::strerror(errno));
  }
  ibv_device_attr attributes{};
  if (verbs().query_device(context.get(), &attributes) != 0)
    return fmt::format("verbs: device {} does not answer", port.device);
  port.limits = attributes;
  port.most_reads = std::clamp(std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom),
                               1, kMostReads);
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    ibv_port_attr state{};
    if (verbs().query_port(context.get(), static_cast<std::uint8_t>(number), &state) != 0) continue;
    if (state.state != IBV_PORT_ACTIVE) continue;
    port.port = static_cast<std::uint8_t>(number);
    port.lid = state.lid;
    port.mtu = state.active_mtu;
    return choose_gid(context.get(), state.gid_tbl_len, gid, port);
  }
  return fmt::format("verbs: device {} has no active port; bring its link up", port.device);
}

}  // namespace

std::string open_verbs(std::string_view argument, VerbsContext& context, VerbsPort& port) {
  if (!verbs_library_missing().empty()) return verbs_library_missing();
  const DeviceList list;
  if (list.count == 0) {
    return "verbs: no RDMA device (`ibv_devices` lists none); load a driver, or use --transport "
           "ucx";
  }
  const std::string_view name = argument.substr(0, argument.find(':'));
  const std::string_view gid =
      name.size() < argument.size() ? argument.substr(name.size() + 1) : std::string_view();
  std::string first;
  for (int i = 0; i < list.count; ++i) {
    if (!name.empty() && name != verbs().get_device_name(list.devices[i])) continue;
    const std::string error = open_one(list.devices[i], gid, context, port);
    if (error.empty()) return {};
    context.reset();
    if (first.empty()) first = error;
  }
  if (!first.empty()) return first;
  return fmt::format("verbs: device '{}' does not exist; legal values: {}", name, list.names());
}

std::string gid_text(const std::uint8_t* gid) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, gid, text, sizeof text);
  return text;
}

std::string_view verbs_advice(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer's adapter did not answer any of the attempts: its process is gone, a link "
             "is down, or its GID cannot be reached from this one; try `ip link` on both hosts, "
             "and another GID";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer had no receive posted: its process no longer runs, or its queue is smaller "
             "than this one's credits";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer's adapter refused the key or the address: its registration is another than "
             "the one told at set-up; both ranks must run the same build";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer's adapter refused the request: it is larger than what the queue pair takes";
    case IBV_WC_REM_OP_ERR:
      return "the peer's adapter could not complete the request; see its kernel log";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
      return "this rank's adapter could not carry out its own request: its link is down, or the "
             "request was refused; try `ip link`, and see the kernel log of this host";
    case IBV_WC_WR_FLUSH_ERR:
      return "the connection was ended, by the peer or by its adapter";
    default:
      return "see the kernel logs of both hosts";
  }
}

}  // namespace sinew::comm
