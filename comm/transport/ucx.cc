// ucx: a Wire over UCP. Blocks and credits are active messages; large blocks go by the rendezvous
// of UCP, from where they lie to where they are wanted: it reads or writes them remotely where the
// device can. Worker addresses are exchanged at set-up.
//
// A peer has two endpoints. The watched one tells when its peer is gone; for that UCX forgoes
// writing into the memory of the peer over TCP, so what is large goes by the other one. Where
// nothing that watches leads to the peer, as over shared memory, the other one serves for both:
// then a peer that dies without a word is noticed at the deadline of whoever waits for it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/error.h"
#include "comm/transport/ucx_library.h"
#include "comm/transport/wire.h"
#include "comm/wait.h"
#include "sched/base/check.h"

namespace sinew::comm {

std::string ucx_missing(std::string_view argument);
std::unique_ptr<Wire> make_ucx(const WirePlace& place);

namespace {

constexpr unsigned kBlockId = 1;
constexpr unsigned kCreditId = 2;
constexpr unsigned kSmallId = 3;  // a block with its header in one piece
// From here on a block goes by rendezvous and by the endpoint that is not watched, where that
// copies nothing. Where both endpoints are, a shorter one is better sent at once, though it is
// copied at both ends: by a rendezvous over the watched one UCX copies too, and its words cross the
// network twice more. Between two hosts over TCP 64 KiB took 41 us at once and 56 us by a
// rendezvous, and with many in flight 32 and 47 us each. Through shared memory it took 9 and 6, and
// 7 and 6.
constexpr std::int64_t kBulkBytes = 128 << 10;
// Endpoints close at once when forced; the bound is for a library that does not keep to that.
constexpr std::int64_t kCloseNs = 500'000'000;

struct Header {
  std::uint64_t flag;  // of a credit: how many
  std::uint32_t from;
  std::uint8_t lane;
  std::uint8_t place;
  std::uint16_t credits;  // that a block brings
};
static_assert(kNetLanes <= 256);

// Context and worker, released in the right order also when set-up throws half-way.
struct Worker {
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { close(); }
  void close() {
    if (worker != nullptr) ucx().worker_destroy(std::exchange(worker, nullptr));
    if (context != nullptr) ucx().cleanup(std::exchange(context, nullptr));
  }

  // What went wrong; empty: nothing.
  std::string open() {
    ucp_config_t* config = nullptr;
    ucs_status_t status = ucx().config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) return std::string("ucx: cannot read UCX_* settings: ") + word(status);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    status = ucx().init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
    ucx().config_release(config);
    if (status != UCS_OK) {
      context = nullptr;
      return std::string("ucx: no usable device: ") + word(status) +
             "; `ucx_info -d` lists devices, UCX_TLS and UCX_NET_DEVICES choose among them";
    }
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    status = ucx().worker_create(context, &worker_params, &worker);
    if (status == UCS_OK) return {};
    worker = nullptr;
    return std::string("ucx: cannot create a worker: ") + word(status);
  }

  static const char* word(ucs_status_t status) { return ucx().status_string(status); }
};

class UcxWire final : public Wire {
 public:
  explicit UcxWire(const WirePlace& place);
  ~UcxWire() override;

  [[nodiscard]] Exposes exposes() const override { return Exposes::kWhole; }
  [[nodiscard]] std::int64_t offers_from(int peer) const override {
    const Peer& to = peers_[static_cast<std::size_t>(peer)];
    return to.watched != to.bulk ? kBulkBytes : NetLayout::kOfferBytes;
  }
  [[nodiscard]] Posted post(const Post& post) override;
  void credit(int peer, int lane, int count) override;
  bool land(int peer, int lane, int place, std::byte* target, std::int64_t room) override;
  void progress() override {
    // What has come is looked at before more is fetched: each look at the network costs a system
    // call.
    told_ = false;
    while (!told_ && ucx_.worker != nullptr && calls_.worker_progress(ucx_.worker) != 0) {
    }
  }
  void stop() override;
  [[nodiscard]] std::string describe() const override {
    return "ucx: devices of UCX's choice (UCX_TLS, UCX_NET_DEVICES)";
  }

 private:
  struct Peer {
    UcxWire* wire = nullptr;
    int rank = 0;
    ucp_ep_h watched = nullptr;
    ucp_ep_h bulk = nullptr;  // may be the same
    bool broken = false;
  };
  // One block under way, in or out. UCP reads the header until the request is done.
  struct Block {
    UcxWire* wire = nullptr;
    int peer = 0;
    int lane = 0;
    int place = 0;
    std::int64_t size = 0;
    Header header{};
    void* offer = nullptr;  // UCX's word for a block that waits at the sender
  };

  void listen(unsigned id, ucp_am_recv_callback_t callback);
  std::string connect(const std::vector<std::byte>& addresses, std::size_t address_size);
  ucs_status_t connect(Peer& peer, const std::byte* address);
  // Bounded.
  void close_endpoints(ucp_ep_h Peer::*which, unsigned flags);
  Block& block(std::vector<Block>& blocks, int peer, int lane, int place) {
    return blocks[(static_cast<std::size_t>(peer) * kNetLanes + static_cast<std::size_t>(lane)) *
                      NetLayout::kDepth +
                  static_cast<std::size_t>(place)];
  }
  void fail(Peer& peer, ucs_status_t status);
  [[nodiscard]] bool plausible(const Header* header, std::size_t size) const {
    return size == sizeof(Header) && header->from < peers_.size() && header->lane < kNetLanes &&
           header->place < NetLayout::kDepth;
  }

  static ucs_status_t on_block(void* arg, const void* header, std::size_t header_size, void* data,
                               std::size_t size, const ucp_am_recv_param_t* param);
  static ucs_status_t on_small(void* arg, const void*, std::size_t, void* data, std::size_t size,
                               const ucp_am_recv_param_t*);
  static ucs_status_t on_credit(void* arg, const void*, std::size_t, void* data, std::size_t size,
                                const ucp_am_recv_param_t*);
  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_credit_sent(void* request, ucs_status_t, void*) { ucx().request_free(request); }
  static void on_received(void* request, ucs_status_t status, std::size_t, void* user_data);
  static void on_error(void* arg, ucp_ep_h, ucs_status_t status);

  WirePlace place_;
  int own_rank_;
  const UcxCalls& calls_ = ucx();
  ucp_request_param_t sending_{};  // of a post
  bool told_ = false;              // the sink, since progress() began
  Worker ucx_;
  std::vector<Peer> peers_;
  std::vector<Block> outgoing_;
  std::vector<Block> incoming_;
  std::vector<Header> credits_;  // [world][lanes]: constant, so that any number may be under way
};

UcxWire::UcxWire(const WirePlace& place) : place_(place), own_rank_(place.bootstrap->rank()) {
  Bootstrap& bootstrap = *place.bootstrap;
  const auto world = static_cast<std::size_t>(bootstrap.world());
  peers_.resize(world);
  outgoing_.resize(world * kNetLanes * NetLayout::kDepth);
  incoming_.resize(outgoing_.size());
  credits_.resize(world * kNetLanes);
  for (int rank = 0; rank < bootstrap.world(); ++rank) {
    peers_[static_cast<std::size_t>(rank)] = {this, rank, nullptr, nullptr, false};
    for (int lane = 0; lane < kNetLanes; ++lane) {
      for (int at = 0; at < NetLayout::kDepth; ++at) {
        block(outgoing_, rank, lane, at) = {this, rank, lane, at, 0, {}, nullptr};
        block(incoming_, rank, lane, at) = {this, rank, lane, at, 0, {}, nullptr};
      }
    }
  }
  agree_on_setup(bootstrap, ucx_.open());
  listen(kBlockId, on_block);
  listen(kSmallId, on_small);
  listen(kCreditId, on_credit);
  sending_.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  sending_.cb.send = on_sent;

  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  const ucs_status_t status = ucx().worker_get_address(ucx_.worker, &address, &size);
  std::size_t longest = 0;
  for (const std::size_t other : bootstrap.exchange(status == UCS_OK ? size : std::size_t{0}))
    longest = std::max(longest, other);
  std::vector<std::byte> mine(longest);
  if (status == UCS_OK) {
    std::memcpy(mine.data(), address, size);
    ucx().worker_release_address(ucx_.worker, address);
  }
  std::vector<std::byte> all(longest * world);
  bootstrap.all_gather(mine, all.data());
  agree_on_setup(bootstrap, status != UCS_OK
                                ? std::string("ucx: no worker address: ") + Worker::word(status)
                                : connect(all, longest));
  place_.bootstrap = nullptr;
}

void UcxWire::listen(unsigned id, ucp_am_recv_callback_t callback) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = callback;
  param.arg = this;
  CHECK_EQ(static_cast<int>(ucx().worker_set_am_recv_handler(ucx_.worker, &param)),
           static_cast<int>(UCS_OK));
}

std::string UcxWire::connect(const std::vector<std::byte>& addresses, std::size_t address_size) {
  for (Peer& peer : peers_) {
    const auto rank = static_cast<std::size_t>(peer.rank);
    if (!place_.reaches[rank]) continue;
    const ucs_status_t status = connect(peer, addresses.data() + rank * address_size);
    if (status == UCS_OK) continue;
    return "ucx: cannot reach rank " + std::to_string(peer.rank) + ": " + Worker::word(status) +
           "; `ucx_info -d` lists devices, UCX_TLS and UCX_NET_DEVICES choose among them";
  }
  return {};
}

// The order of endpoints is the same on both sides, by which UCX pairs them.
ucs_status_t UcxWire::connect(Peer& peer, const std::byte* address) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(address);
  params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
  const ucs_status_t status = ucx().ep_create(ucx_.worker, &params, &peer.bulk);
  if (status != UCS_OK) {
    peer.bulk = nullptr;
    return status;
  }
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, &peer};
  const UcxQuiet quiet;
  if (ucx().ep_create(ucx_.worker, &params, &peer.watched) != UCS_OK) peer.watched = peer.bulk;
  return UCS_OK;
}

UcxWire::~UcxWire() {
  // What is left of a rendezvous whose call has returned, as its last acknowledgement.
  close_endpoints(&Peer::bulk, 0);
  stop();
}

void UcxWire::stop() {
  if (ucx_.worker == nullptr) return;
  for (Block& in : incoming_) {
    if (in.offer != nullptr) calls_.am_data_release(ucx_.worker, std::exchange(in.offer, nullptr));
  }
  for (Peer& peer : peers_) peer.broken = true;
  close_endpoints(&Peer::watched, UCP_EP_CLOSE_FLAG_FORCE);
  // The others may not be forced: they go with the worker, and whatever is under way with them.
  ucx_.close();
}

void UcxWire::close_endpoints(ucp_ep_h Peer::*which, unsigned flags) {
  std::vector<void*> closing;
  for (Peer& peer : peers_) {
    if (peer.*which == nullptr || peer.broken || peer.watched == peer.bulk) continue;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = flags;
    void* request = ucx().ep_close_nbx(peer.*which, &param);
    peer.*which = nullptr;
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
  }
  const std::int64_t start_ns = now_ns();
  for (void* request : closing) {
    while (ucx().request_check_status(request) == UCS_INPROGRESS &&
           now_ns() - start_ns < kCloseNs) {
      ucx().worker_progress(ucx_.worker);
    }
    ucx().request_free(request);
  }
}

Wire::Posted UcxWire::post(const Post& post) {
  Peer& peer = peers_[static_cast<std::size_t>(post.peer)];
  if (peer.broken) return Posted::kSent;
  Block& out = block(outgoing_, post.peer, post.lane, post.place);
  out.header = {post.flag, static_cast<std::uint32_t>(own_rank_),
                static_cast<std::uint8_t>(post.lane), static_cast<std::uint8_t>(post.place),
                static_cast<std::uint16_t>(post.credits)};
  const bool at_once = post.exposed_bytes == 0 && post.size < offers_from(post.peer);
  sending_.flags = at_once ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  sending_.user_data = &out;
  void* request = nullptr;
  if (at_once) {
    // UCX sends what has no header of its own without making a request. The staging has room for
    // one before the block.
    std::byte* data = place_.staging + (post.data - place_.staging) - sizeof(Header);
    std::memcpy(data, &out.header, sizeof(Header));
    request = calls_.am_send_nbx(peer.watched, kSmallId, nullptr, 0, data,
                                 static_cast<std::size_t>(post.size) + sizeof(Header), &sending_);
  } else {
    request = calls_.am_send_nbx(post.size >= kBulkBytes ? peer.bulk : peer.watched, kBlockId,
                                 &out.header, sizeof out.header, post.data,
                                 static_cast<std::size_t>(post.size), &sending_);
  }
  if (UCS_PTR_IS_PTR(request)) return Posted::kLent;
  if (UCS_PTR_IS_ERR(request)) fail(peer, UCS_PTR_STATUS(request));
  return Posted::kSent;
}

void UcxWire::credit(int peer, int lane, int count) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  if (to.broken) return;
  Header& header =
      credits_[static_cast<std::size_t>(peer) * kNetLanes + static_cast<std::size_t>(lane)];
  // A lane returns the same number each time.
  CHECK(header.flag == 0 || header.flag == static_cast<std::uint64_t>(count));
  header = {static_cast<std::uint64_t>(count), static_cast<std::uint32_t>(own_rank_),
            static_cast<std::uint8_t>(lane), 0, 0};
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
  param.cb.send = on_credit_sent;
  void* request =
      ucx().am_send_nbx(to.watched, kCreditId, nullptr, 0, &header, sizeof header, &param);
  if (UCS_PTR_IS_ERR(request)) fail(to, UCS_PTR_STATUS(request));
}

ucs_status_t UcxWire::on_block(void* arg, const void* header, std::size_t header_size, void* data,
                               std::size_t size, const ucp_am_recv_param_t* param) {
  auto& wire = *static_cast<UcxWire*>(arg);
  Header head{};
  std::memcpy(&head, header, std::min(header_size, sizeof head));
  const bool waits = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (!wire.plausible(&head, header_size) ||
      static_cast<std::int64_t>(size) > wire.place_.layout->most_bytes(head.lane, waits)) {
    return UCS_OK;  // not from a peer of this communicator
  }
  const auto from = static_cast<int>(head.from);
  wire.told_ = true;
  if (!waits) {
    wire.place_.sink->brought(from, head.lane, head.place, head.flag,
                              {static_cast<const std::byte*>(data), size}, head.credits);
    return UCS_OK;
  }
  if (head.credits > 0) wire.place_.sink->credited(from, head.lane, head.credits);
  Block& in = wire.block(wire.incoming_, from, head.lane, head.place);
  in.header = head;
  in.size = static_cast<std::int64_t>(size);
  in.offer = data;
  wire.place_.sink->offered(from, head.lane, head.place, head.flag, in.size);
  return UCS_INPROGRESS;
}

bool UcxWire::land(int peer, int lane, int place, std::byte* target, std::int64_t) {
  Block& in = block(incoming_, peer, lane, place);
  if (peers_[static_cast<std::size_t>(peer)].broken) return true;
  if (target == nullptr) target = place_.slots + place_.layout->offset(peer, lane, place);
  ucp_request_param_t receive{};
  receive.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  receive.cb.recv_am = on_received;
  receive.user_data = &in;
  void* request = calls_.am_recv_data_nbx(ucx_.worker, std::exchange(in.offer, nullptr), target,
                                          static_cast<std::size_t>(in.size), &receive);
  if (UCS_PTR_IS_ERR(request)) {
    fail(peers_[static_cast<std::size_t>(peer)], UCS_PTR_STATUS(request));
  } else if (request == nullptr) {
    place_.sink->arrived(peer, lane, place, in.header.flag, in.size);
  }
  return true;
}

void UcxWire::on_received(void* request, ucs_status_t status, std::size_t, void* user_data) {
  const Block& in = *static_cast<Block*>(user_data);
  in.wire->told_ = true;
  if (status == UCS_OK) {
    in.wire->place_.sink->arrived(in.peer, in.lane, in.place, in.header.flag, in.size);
  } else {
    in.wire->fail(in.wire->peers_[static_cast<std::size_t>(in.peer)], status);
  }
  ucx().request_free(request);
}

ucs_status_t UcxWire::on_small(void* arg, const void*, std::size_t, void* data, std::size_t size,
                               const ucp_am_recv_param_t*) {
  auto& wire = *static_cast<UcxWire*>(arg);
  Header head{};
  std::memcpy(&head, data, std::min(size, sizeof head));
  const auto length = static_cast<std::int64_t>(size) - static_cast<std::int64_t>(sizeof head);
  if (!wire.plausible(&head, std::min(size, sizeof head)) ||
      length > wire.place_.layout->slot_bytes(head.lane)) {
    return UCS_OK;  // not from a peer of this communicator
  }
  wire.told_ = true;
  wire.place_.sink->brought(
      static_cast<int>(head.from), head.lane, head.place, head.flag,
      {static_cast<const std::byte*>(data) + sizeof head, static_cast<std::size_t>(length)},
      head.credits);
  return UCS_OK;
}

ucs_status_t UcxWire::on_credit(void* arg, const void*, std::size_t, void* data, std::size_t size,
                                const ucp_am_recv_param_t*) {
  auto& wire = *static_cast<UcxWire*>(arg);
  Header head{};
  std::memcpy(&head, data, std::min(size, sizeof head));
  if (wire.plausible(&head, size)) {
    wire.told_ = true;
    wire.place_.sink->credited(static_cast<int>(head.from), head.lane, static_cast<int>(head.flag));
  }
  return UCS_OK;
}

void UcxWire::on_sent(void* request, ucs_status_t status, void* user_data) {
  const Block& out = *static_cast<Block*>(user_data);
  out.wire->told_ = true;
  if (status != UCS_OK)
    out.wire->fail(out.wire->peers_[static_cast<std::size_t>(out.peer)], status);
  out.wire->place_.sink->sent(out.peer, out.lane, out.place);
  ucx().request_free(request);
}

void UcxWire::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto& peer = *static_cast<Peer*>(arg);
  peer.wire->fail(peer, status);
}

void UcxWire::fail(Peer& peer, ucs_status_t status) {
  if (peer.broken) return;
  peer.broken = true;
  place_.sink->broken(peer.rank, std::string("ucx: the connection failed: ") +
                                     Worker::word(status) +
                                     "; its process is gone or the network between is down");
}

}  // namespace

std::string ucx_missing(std::string_view argument) {
  return argument.empty() ? ucx_library_missing()
                          : "ucx: takes no device after a colon; UCX_NET_DEVICES chooses it";
}

std::unique_ptr<Wire> make_ucx(const WirePlace& place) { return std::make_unique<UcxWire>(place); }

}  // namespace sinew::comm
