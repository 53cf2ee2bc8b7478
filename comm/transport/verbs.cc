#include "comm/transport/verbs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <utility>

#include "comm/transport/verbs_device.h"
#include "comm/transport/verbs_receives.h"
#include "comm/transport/verbs_regions.h"
#include "comm/transport/wire.h"
#include "sched/base/check.h"
#include "sched/base/units.h"

namespace sinew::comm {

std::string verbs_missing(std::string_view argument);
std::unique_ptr<Wire> make_verbs(const WirePlace& place);

namespace {

// A lane has kDepth blocks or offers under way, words that as many of the peer's were read, and
// credits for as many in two halves; of notices each has its own. Then there are reads and a probe.
// What remains is for those that are done but not known to be, since only every kSignalEvery-th
// reports.
constexpr int kSignalEvery = 8;
constexpr int kProbes = 1;
constexpr int kQueue = kNetLanes * (2 * NetLayout::kDepth + 2) + NetLayout::kDepth + kMostReads +
                       kProbes + 4 * kSignalEvery;
// 4.096 us * 2^15 = 134 ms before a packet is sent again, 6 times: a dead peer shows in a second,
// and a link that loses one packet in a hundred does not look dead. Soft adapters take 7, the most,
// for "without end".
constexpr std::uint8_t kTimeout = 15;
constexpr std::uint8_t kRetries = 6;
// A receiver that has posted nothing is only slow: for ever (7), 0.64 ms between attempts (12).
constexpr std::uint8_t kReceiverRetries = 7;
constexpr std::uint8_t kReceiverPause = 12;
constexpr std::uint32_t kInlineBytes = 64;
// A system call a look: hundreds of polls cost more than it, and a sleeping wait makes thousands a
// second.
constexpr std::uint32_t kLookAtPortEvery = 256;

using Head = VerbsHead;
using Offer = VerbsOffer;
static_assert(sizeof(Offer) <= NetLayout::kLeadBytes);

// The immediate data: a credit has a count, the rest has none and one of these kinds.
enum class Kind : std::uint8_t { kBlock, kInline, kOffer, kTaken, kCredit, kRead, kProbe };

constexpr std::uint32_t immediate(Kind kind, int lane, int place, int count) {
  return static_cast<std::uint32_t>(count) << 16 | static_cast<std::uint32_t>(lane) << 8 |
         static_cast<std::uint32_t>(kind) << 4 | static_cast<std::uint32_t>(place);
}
constexpr int count_of(std::uint32_t bits) { return static_cast<int>(bits >> 16); }
constexpr int lane_of(std::uint32_t bits) { return static_cast<int>(bits >> 8 & 0xff); }
constexpr Kind kind_of(std::uint32_t bits) { return static_cast<Kind>(bits >> 4 & 0xf); }
constexpr int place_of(std::uint32_t bits) { return static_cast<int>(bits & 0xf); }
static_assert(NetLayout::kDepth <= 16);

using Domain = std::unique_ptr<ibv_pd, VerbsDelete>;
using Completions = std::unique_ptr<ibv_cq, VerbsDelete>;
using Region = std::unique_ptr<ibv_mr, VerbsDelete>;
using QueuePair = std::unique_ptr<ibv_qp, VerbsDelete>;

// Receives that connections share are not reported when one of those ends.
bool ends(const ibv_async_event& event, const ibv_qp* pair) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp == pair;
    default:
      return false;
  }
}

class VerbsWire final : public Wire {
 public:
  explicit VerbsWire(const WirePlace& place);

  // No more than a slot holds: memory that cannot be registered is copied.
  [[nodiscard]] Exposes exposes() const override { return Exposes::kBlocks; }
  [[nodiscard]] Posted post(const Post& post) override;
  void credit(int peer, int lane, int count) override;
  bool land(int peer, int lane, int place, std::byte* target, std::int64_t room) override;
  void progress() override;
  void probe(int rank) override;
  void stop() override;
  [[nodiscard]] std::string describe() const override;

 private:
  struct Peer {
    QueuePair queue_pair;
    VerbsAddress remote{};
    std::uint32_t first_packet = 0;
    std::uint32_t inline_bytes = 0;
    int receives_owed = 0;  // to a queue of its own
    int unreported = 0;     // credits since the last one that reports
    bool broken = false;
    bool probed = false;  // a probe is under way
    // Blocks of the peer that wait to be read, as requests. They wait here and not in the queue,
    // where words and credits would wait behind them.
    std::deque<std::uint32_t> to_read;
    int most_reads = 1;
    int reads = 0;                                       // under way
    std::array<VerbsRegions::Lent*, kMostReads> read{};  // what it has read last, a ring
    std::size_t oldest_read = 0;
  };

  // A block that was offered, by this rank or to it.
  struct Offered {
    Offer offer{};
    std::byte* target = nullptr;  // where it is wanted
    std::uint32_t asked = 0;      // of its bytes, in reads
    std::uint32_t read = 0;
    VerbsRegions::Lent* lent = nullptr;
  };
  [[nodiscard]] Offered& offered(std::vector<Offered>& all, int rank, int lane, int place) {
    return all[(static_cast<std::size_t>(rank) * kNetLanes + static_cast<std::size_t>(lane)) *
                   NetLayout::kDepth +
               static_cast<std::size_t>(place)];
  }
  bool post_offer(const Post& post);
  void taken(int rank, int lane, int place);
  void start_reads(int rank);
  void was_read(int rank, int lane, int place);
  void landed(int rank, int lane, int place);
  std::string open();
  std::string open_peer(Peer& peer);
  std::string connect(Peer& peer);
  [[nodiscard]] std::string refused(const char* what) const;
  enum class Report : std::uint8_t { kAlways, kSometimes };
  void write(int rank, ibv_send_wr& request, ibv_sge& part, Report report);
  void submit(int rank, ibv_send_wr& request, ibv_sge& part, Report report);
  void look_at_port();
  void complete(const ibv_wc& completion);
  void complete_receive(int rank, std::uint32_t bits);
  void fail(int rank, const std::string& why);
  [[nodiscard]] Peer& peer_of(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  WirePlace place_;
  int own_rank_;
  VerbsPort port_;
  VerbsContext context_;
  Domain domain_;
  Completions completions_;
  Region slots_;
  Region staging_;
  VerbsRegions regions_;
  VerbsReceives receives_;
  std::uint32_t polls_ = 0;
  std::vector<Offered> given_;  // [world][lanes][places]
  std::vector<Offered> got_;
  std::vector<Peer> peers_;
  std::vector<std::pair<std::uint32_t, int>> rank_of_queue_pair_;  // sorted
};

VerbsWire::VerbsWire(const WirePlace& place) : place_(place), own_rank_(place.bootstrap->rank()) {
  Bootstrap& bootstrap = *place.bootstrap;
  const auto world = static_cast<std::size_t>(bootstrap.world());
  peers_.resize(world);
  given_.resize(world * kNetLanes * NetLayout::kDepth);
  got_.resize(given_.size());
  agree_on_setup(bootstrap, open());
  std::vector<VerbsAddress> mine(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.queue_pair == nullptr) continue;
    VerbsAddress& address = mine[rank];
    std::memcpy(address.gid, port_.gid.raw, sizeof address.gid);
    address.slots = reinterpret_cast<std::uintptr_t>(place.slots);
    address.key = slots_->rkey;
    address.queue_pair = peer.queue_pair->qp_num;
    address.first_packet = peer.first_packet;
    address.lid = port_.lid;
    address.mtu = static_cast<std::uint8_t>(port_.mtu);
    address.reads = static_cast<std::uint8_t>(port_.most_reads);
  }
  std::vector<VerbsAddress> all(world * world);
  bootstrap.all_gather(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()));
  std::string error;
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (peers_[rank].queue_pair == nullptr) continue;
    peers_[rank].remote = all[rank * world + static_cast<std::size_t>(own_rank_)];
    if (error.empty()) error = connect(peers_[rank]);
  }
  // Also the sign that every rank can receive.
  agree_on_setup(bootstrap, error);
  place_.bootstrap = nullptr;
}

std::string VerbsWire::refused(const char* what) const {
  return fmt::format("verbs: device {} refused {}: {}", port_.device, what, std::strerror(errno));
}

std::string VerbsWire::open() {
  std::string error = open_verbs(place_.argument, context_, port_);
  if (!error.empty()) return error;
  if (port_.limits.max_qp_wr < std::max(kQueue, VerbsReceives::kOfPeer)) {
    return fmt::format("verbs: device {} has queues of {} requests; this transport needs {}",
                       port_.device, port_.limits.max_qp_wr, kQueue);
  }
  fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
  domain_.reset(verbs().alloc_pd(context_.get()));
  if (domain_ == nullptr) return refused("a protection domain");
  regions_.open(domain_.get());
  const auto peers =
      static_cast<int>(std::count(place_.reaches.begin(), place_.reaches.end(), true));
  completions_.reset(verbs().create_cq(
      context_.get(), std::max(1, peers) * (kQueue + VerbsReceives::kOfPeer), nullptr, nullptr, 0));
  if (completions_ == nullptr) return refused("a completion queue; fewer ranks need a smaller one");
  const std::size_t size = place_.layout->size_bytes();
  slots_.reset(verbs().reg_mr(domain_.get(), place_.slots, size,
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  if (slots_ != nullptr) staging_.reset(verbs().reg_mr(domain_.get(), place_.staging, size, 0));
  if (staging_ == nullptr) {
    const int code = errno;
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return fmt::format(
        "verbs: device {} cannot register 2 x {}: {}; locked memory of this process is limited to "
        "{}: raise it with `ulimit -l`",
        port_.device, format_bytes(static_cast<std::int64_t>(size)), std::strerror(code),
        limit.rlim_cur == RLIM_INFINITY ? std::string("nothing less than all")
                                        : format_bytes(static_cast<std::int64_t>(limit.rlim_cur)));
  }
  receives_.open(domain_.get(), port_.device, port_.limits, peers);
  for (std::size_t rank = 0; rank < peers_.size() && error.empty(); ++rank) {
    if (!place_.reaches[rank]) continue;
    error = open_peer(peers_[rank]);
    if (!error.empty()) break;
    rank_of_queue_pair_.emplace_back(peers_[rank].queue_pair->qp_num, static_cast<int>(rank));
  }
  std::sort(rank_of_queue_pair_.begin(), rank_of_queue_pair_.end());
  return error;
}

std::string VerbsWire::open_peer(Peer& peer) {
  ibv_qp_init_attr wish{};
  wish.send_cq = wish.recv_cq = completions_.get();
  wish.qp_type = IBV_QPT_RC;
  wish.cap.max_send_wr = kQueue;
  wish.cap.max_send_sge = 1;
  receives_.attach(wish);
  wish.cap.max_inline_data = kInlineBytes;
  peer.queue_pair.reset(verbs().create_qp(domain_.get(), &wish));
  if (peer.queue_pair == nullptr) return refused("a queue pair");
  peer.inline_bytes = wish.cap.max_inline_data;
  peer.first_packet = std::random_device()() & 0xffffff;
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_INIT;
  state.port_num = port_.port;
  state.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (verbs().modify_qp(peer.queue_pair.get(), &state,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
    return refused("to initialise a queue pair");
  errno = receives_.begin(peer.queue_pair.get());
  return errno == 0 ? std::string() : refused("receives");
}

std::string VerbsWire::connect(Peer& peer) {
  ibv_gid gid{};
  std::memcpy(gid.raw, peer.remote.gid, sizeof gid.raw);
  ibv_qp_attr state{};
  state.qp_state = IBV_QPS_RTR;
  state.path_mtu = std::min(port_.mtu, static_cast<ibv_mtu>(peer.remote.mtu));
  state.dest_qp_num = peer.remote.queue_pair;
  state.rq_psn = peer.remote.first_packet;
  const auto reads =
      static_cast<std::uint8_t>(std::min(port_.most_reads, std::max<int>(peer.remote.reads, 1)));
  state.max_dest_rd_atomic = reads;
  peer.most_reads = reads;
  state.min_rnr_timer = kReceiverPause;
  state.ah_attr.is_global = 1;
  state.ah_attr.port_num = port_.port;
  state.ah_attr.dlid = peer.remote.lid;
  state.ah_attr.grh.dgid = gid;
  state.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_.gid_index);
  state.ah_attr.grh.hop_limit = 64;
  if (verbs().modify_qp(peer.queue_pair.get(), &state,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) !=
      0) {
    return refused("to connect") +
           fmt::format(" (from GID {} to {})", gid_text(port_.gid.raw), gid_text(gid.raw));
  }
  state = {};
  state.qp_state = IBV_QPS_RTS;
  state.timeout = kTimeout;
  state.retry_cnt = kRetries;
  state.rnr_retry = kReceiverRetries;
  state.sq_psn = peer.first_packet;
  state.max_rd_atomic = reads;
  if (verbs().modify_qp(peer.queue_pair.get(), &state,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    return refused("to send");
  return {};
}

Wire::Posted VerbsWire::post(const Post& post) {
  Peer& peer = peer_of(post.peer);
  if (peer.broken) return Posted::kSent;
  const std::size_t offset = place_.layout->offset(post.peer, post.lane, post.place);
  std::byte* data = place_.staging + offset;
  if (post.exposed_bytes > 0) {
    if (post_offer(post)) return Posted::kLent;
    std::memcpy(data, post.data, static_cast<std::size_t>(post.size));
  } else {
    CHECK(post.data == data);
  }
  const Head head{post.flag, static_cast<std::uint32_t>(post.size),
                  static_cast<std::uint32_t>(post.credits)};
  std::memcpy(data - sizeof head, &head, sizeof head);
  ibv_sge part{reinterpret_cast<std::uintptr_t>(data) - sizeof head,
               static_cast<std::uint32_t>(post.size) + static_cast<std::uint32_t>(sizeof head),
               staging_->lkey};
  ibv_send_wr request{};
  // What is sent inline is with the adapter when it is posted.
  const bool inlined = part.length <= peer.inline_bytes;
  request.wr_id = immediate(inlined ? Kind::kInline : Kind::kBlock, post.lane, post.place, 0);
  request.wr.rdma.remote_addr =
      peer.remote.slots + place_.layout->offset(own_rank_, post.lane, post.place) - sizeof head;
  write(post.peer, request, part, inlined ? Report::kSometimes : Report::kAlways);
  if (inlined || peer.broken) return Posted::kSent;
  return post.exposed_bytes > 0 ? Posted::kCopied : Posted::kLent;
}

// False: the memory cannot be registered.
bool VerbsWire::post_offer(const Post& post) {
  VerbsRegions::Lent* lent =
      regions_.lend(post.data, post.size, post.exposed_bytes, IBV_ACCESS_REMOTE_READ);
  if (lent == nullptr) return false;
  Peer& peer = peer_of(post.peer);
  Offered& given = offered(given_, post.peer, post.lane, post.place);
  CHECK(given.lent == nullptr);
  given.lent = lent;
  given.offer = {.source = reinterpret_cast<std::uintptr_t>(post.data),
                 .key = lent->region->rkey,
                 .unused = 0,
                 .head = {post.flag, static_cast<std::uint32_t>(post.size),
                          static_cast<std::uint32_t>(post.credits)}};
  std::byte* data =
      place_.staging + place_.layout->offset(post.peer, post.lane, post.place) - sizeof(Offer);
  std::memcpy(data, &given.offer, sizeof(Offer));
  ibv_sge part{reinterpret_cast<std::uintptr_t>(data), sizeof(Offer), staging_->lkey};
  ibv_send_wr request{};
  request.wr_id = immediate(Kind::kOffer, post.lane, post.place, 0);
  request.wr.rdma.remote_addr =
      peer.remote.slots + place_.layout->offset(own_rank_, post.lane, post.place) - sizeof(Offer);
  write(post.peer, request, part, Report::kSometimes);
  if (peer.broken) taken(post.peer, post.lane, post.place);
  return true;
}

// The peer has read what was offered, or never will. Its adapter may have asked twice, because an
// answer was late, and the second request may arrive after this. It must find the memory
// registered: else the adapter here refuses it and ends the connection. An adapter remembers no
// more requests than may be under way, and drops older ones that come again.
void VerbsWire::taken(int rank, int lane, int place) {
  Offered& given = offered(given_, rank, lane, place);
  CHECK(given.lent != nullptr);
  regions_.end(given.lent);
  Peer& peer = peer_of(rank);
  VerbsRegions::Lent*& oldest = peer.read[peer.oldest_read++ % kMostReads];
  if (oldest != nullptr) regions_.release(oldest);
  oldest = std::exchange(given.lent, nullptr);
  place_.sink->sent(rank, lane, place);
}

bool VerbsWire::land(int rank, int lane, int place, std::byte* target, std::int64_t room) {
  Peer& peer = peer_of(rank);
  if (peer.broken) return true;
  Offered& got = offered(got_, rank, lane, place);
  const Offer& offer = got.offer;
  const bool in_slots =
      target >= place_.slots && target < place_.slots + place_.layout->size_bytes();
  if (target != nullptr && !in_slots)
    got.lent = regions_.lend(target, offer.head.size, room, IBV_ACCESS_LOCAL_WRITE);
  const bool wanted = in_slots || got.lent != nullptr;
  if (!wanted) target = place_.slots + place_.layout->offset(rank, lane, place);
  got.target = target;
  got.asked = got.read = 0;
  peer.to_read.push_back(immediate(Kind::kRead, lane, place, 0));
  start_reads(rank);
  return wanted;
}

void VerbsWire::start_reads(int rank) {
  Peer& peer = peer_of(rank);
  while (!peer.broken && !peer.to_read.empty() && peer.reads < peer.most_reads) {
    const std::uint32_t id = peer.to_read.front();
    Offered& got = offered(got_, rank, lane_of(id), place_of(id));
    const std::uint32_t size = std::min(got.offer.head.size - got.asked, kReadBytes);
    ibv_sge part{reinterpret_cast<std::uintptr_t>(got.target) + got.asked, size,
                 got.lent != nullptr ? got.lent->region->lkey : slots_->lkey};
    ibv_send_wr request{};
    request.wr_id = id;
    request.opcode = IBV_WR_RDMA_READ;
    request.wr.rdma.remote_addr = got.offer.source + got.asked;
    request.wr.rdma.rkey = got.offer.key;
    got.asked += size;
    if (got.asked == got.offer.head.size) peer.to_read.pop_front();
    ++peer.reads;
    submit(rank, request, part, Report::kAlways);
  }
}

// One read is done; those of a connection end in their order.
void VerbsWire::was_read(int rank, int lane, int place) {
  Offered& got = offered(got_, rank, lane, place);
  --peer_of(rank).reads;
  start_reads(rank);
  got.read = std::min(got.read + kReadBytes, got.offer.head.size);
  if (got.read == got.offer.head.size) landed(rank, lane, place);
}

void VerbsWire::landed(int rank, int lane, int place) {
  Peer& peer = peer_of(rank);
  Offered& got = offered(got_, rank, lane, place);
  if (got.lent != nullptr) {
    regions_.end(got.lent);
    regions_.release(std::exchange(got.lent, nullptr));
  }
  ibv_sge part{};
  ibv_send_wr request{};
  request.wr_id = immediate(Kind::kTaken, lane, place, 0);
  request.wr.rdma.remote_addr = peer.remote.slots;
  if (!peer.broken) write(rank, request, part, Report::kSometimes);
  place_.sink->arrived(rank, lane, place, got.offer.head.flag, got.offer.head.size);
}

void VerbsWire::credit(int rank, int lane, int count) {
  Peer& peer = peer_of(rank);
  if (peer.broken) return;
  ibv_sge part{};
  ibv_send_wr request{};
  request.wr_id = immediate(Kind::kCredit, lane, 0, count);
  // Writes nothing, but the key must be one that the peer gave.
  request.wr.rdma.remote_addr = peer.remote.slots;
  write(rank, request, part, Report::kSometimes);
}

// An adapter answers for a process that is stopped as for any, so a rank may have sent all that it
// may and be owed nothing by the adapter of a peer that dies after that. This writes nothing and
// takes no receive.
void VerbsWire::probe(int rank) {
  Peer& peer = peer_of(rank);
  if (peer.broken || std::exchange(peer.probed, true)) return;
  ibv_sge part{};
  ibv_send_wr request{};
  request.wr_id = immediate(Kind::kProbe, 0, 0, 0);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = peer.remote.slots;
  request.wr.rdma.rkey = peer.remote.key;
  submit(rank, request, part, Report::kAlways);
}

// Into the peer's slots, and the request's own number as immediate data.
void VerbsWire::write(int rank, ibv_send_wr& request, ibv_sge& part, Report report) {
  const Peer& peer = peer_of(rank);
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(static_cast<std::uint32_t>(request.wr_id));
  request.wr.rdma.rkey = peer.remote.key;
  if (part.length > 0 && part.length <= peer.inline_bytes) request.send_flags = IBV_SEND_INLINE;
  submit(rank, request, part, report);
}

void VerbsWire::submit(int rank, ibv_send_wr& request, ibv_sge& part, Report report) {
  Peer& peer = peer_of(rank);
  request.sg_list = &part;
  request.num_sge = part.length > 0 ? 1 : 0;
  if (report == Report::kAlways || ++peer.unreported == kSignalEvery) {
    peer.unreported = 0;
    request.send_flags |= IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  const int code = ibv_post_send(peer.queue_pair.get(), &request, &bad);
  if (code != 0) {
    fail(rank, fmt::format("verbs: cannot post a write: {}; {} requests fit into the queue",
                           std::strerror(code), kQueue));
  }
}

// A port that goes down need not end any request by itself.
void VerbsWire::look_at_port() {
  ibv_async_event event{};
  while (verbs().get_async_event(context_.get(), &event) == 0) {
    verbs().ack_async_event(&event);
    const bool whole =
        event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_DEVICE_FATAL;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      const ibv_qp* pair = peers_[rank].queue_pair.get();
      if (pair == nullptr || !(whole || ends(event, pair))) continue;
      const char* what = verbs().event_type_str(event.event_type);
      fail(static_cast<int>(rank),
           whole ? fmt::format("verbs: {} on device {} port {}: its link went down; see `ip link`",
                               what, port_.device, port_.port)
                 : fmt::format("verbs: {} on device {}: {}", what, port_.device,
                               verbs_advice(IBV_WC_WR_FLUSH_ERR)));
    }
  }
}

void VerbsWire::progress() {
  if (++polls_ % kLookAtPortEvery == 0) look_at_port();
  constexpr int kAtOnce = 16;
  ibv_wc completions[kAtOnce];
  for (;;) {
    const int count = ibv_poll_cq(completions_.get(), kAtOnce, completions);
    for (int i = 0; i < count; ++i) complete(completions[i]);
    if (count < kAtOnce) return;
  }
}

void VerbsWire::complete(const ibv_wc& completion) {
  const auto at = std::lower_bound(rank_of_queue_pair_.begin(), rank_of_queue_pair_.end(),
                                   std::pair(completion.qp_num, -1));
  if (at == rank_of_queue_pair_.end() || at->first != completion.qp_num) return;
  const int rank = at->second;
  if (completion.status != IBV_WC_SUCCESS) {
    const Peer& peer = peer_of(rank);
    fail(rank,
         fmt::format("verbs: {} (from GID {} on {} to GID {}): {}",
                     verbs().wc_status_str(completion.status), gid_text(port_.gid.raw),
                     port_.device, gid_text(peer.remote.gid), verbs_advice(completion.status)));
    return;
  }
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    complete_receive(rank, ntohl(completion.imm_data));
    return;
  }
  const auto id = static_cast<std::uint32_t>(completion.wr_id);
  const Kind kind = kind_of(id);
  if (kind == Kind::kBlock) place_.sink->sent(rank, lane_of(id), place_of(id));
  if (kind == Kind::kRead) was_read(rank, lane_of(id), place_of(id));
  if (kind == Kind::kProbe) peer_of(rank).probed = false;
}

void VerbsWire::complete_receive(int rank, std::uint32_t bits) {
  const int lane = lane_of(bits);
  const Kind kind = kind_of(bits);
  const int place = place_of(bits);
  CHECK_LT(lane, kNetLanes);
  CHECK_LT(place, NetLayout::kDepth);
  const std::byte* slot = place_.slots + place_.layout->offset(rank, lane, place);
  if (kind == Kind::kCredit) {
    place_.sink->credited(rank, lane, count_of(bits));
  } else if (kind == Kind::kTaken) {
    taken(rank, lane, place);
  } else {
    Offer offer{};
    const std::size_t size = kind == Kind::kOffer ? sizeof offer : sizeof offer.head;
    std::memcpy(reinterpret_cast<std::byte*>(&offer) + sizeof offer - size, slot - size, size);
    const Head& head = offer.head;
    if (head.credits > 0) place_.sink->credited(rank, lane, static_cast<int>(head.credits));
    if (kind == Kind::kOffer) {
      offered(got_, rank, lane, place).offer = offer;
      place_.sink->offered(rank, lane, place, head.flag, head.size);
    } else {
      place_.sink->arrived(rank, lane, place, head.flag, head.size);
    }
  }
  Peer& peer = peer_of(rank);
  if (peer.broken && !receives_.shared()) return;
  const int code = receives_.used(peer.queue_pair.get(), &peer.receives_owed);
  if (code != 0) fail(rank, fmt::format("verbs: cannot post receives: {}", std::strerror(code)));
}

std::string VerbsWire::describe() const {
  const int mtu = 128 << static_cast<int>(port_.mtu);
  return fmt::format("verbs: device {} port {}, GID {} ({}), packets of {} bytes; {}", port_.device,
                     port_.port, port_.gid_index, gid_text(port_.gid.raw), mtu,
                     receives_.description());
}

void VerbsWire::stop() {
  rank_of_queue_pair_.clear();
  for (Peer& peer : peers_) {
    peer.broken = true;
    peer.queue_pair.reset();
  }
  regions_.clear();
}

void VerbsWire::fail(int rank, const std::string& why) {
  if (peer_of(rank).broken) return;
  peer_of(rank).broken = true;
  if (place_.bootstrap == nullptr) place_.sink->broken(rank, why);
}

}  // namespace

std::string verbs_missing(std::string_view argument) {
  VerbsContext context;
  VerbsPort port;
  return open_verbs(argument, context, port);
}

std::unique_ptr<Wire> make_verbs(const WirePlace& place) {
  return std::make_unique<VerbsWire>(place);
}

}  // namespace sinew::comm
