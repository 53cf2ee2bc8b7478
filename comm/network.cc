#include "comm/network.h"

#include <sched.h>

#include <cstdio>
#include <cstring>

#include "comm/engine.h"

namespace sinew::comm {

namespace {

// Often enough that errors name the present call; a thousandth of a core's time.
constexpr std::int64_t kTellRowNs = 50'000'000;
// How long after a broken connection the peers' own words about it are preferred to ours.
constexpr std::int64_t kGraceNs = 300'000'000;
// How long a word is waited for that names what a peer called instead. A peer that waits tells
// twenty times a second; one that does not may take long.
constexpr std::int64_t kNameNs = 5'000'000'000;
// A rank that leaves, or fails, waits this long at most for its peers to have heard it; after that
// what it sent lies in their hosts anyway.
constexpr std::int64_t kFarewellNs = 2'000'000'000;
constexpr std::int64_t kPoisonNs = 1'000'000'000;
// Rare enough to cost nothing beside the own network, often enough for what a call left behind.
constexpr std::uint32_t kPollFamilyEvery = 32;

struct PoisonNotice {
  std::uint32_t cause;
  std::int32_t peer;
  char text[1008];
};
static_assert(sizeof(PoisonNotice) <= NetLayout::kNoticeBytes);

}  // namespace

void NetworkFamily::add(Network& network) {
  const std::lock_guard lock(mutex_);
  networks_.push_back(&network);
}

void NetworkFamily::remove(Network& network) {
  const std::lock_guard lock(mutex_);
  std::erase(networks_, &network);
}

// One that another thread holds is being polled by it.
void NetworkFamily::poll_others(const Network& caller) {
  const std::lock_guard lock(mutex_);
  for (Network* network : networks_) {
    if (network == &caller) continue;
    const std::unique_lock own(network->transport().mutex(), std::try_to_lock);
    if (own) network->transport().progress();
  }
}

void NetworkFamily::hear_all() {
  const std::lock_guard lock(mutex_);
  for (Network* network : networks_) {
    const std::unique_lock own(network->transport().mutex(), std::try_to_lock);
    if (own) network->hear();
  }
}

Network::Network(const NetPlace& place, Roster& roster, std::shared_ptr<NetworkFamily> family)
    : roster_(roster),
      family_(family != nullptr ? std::move(family) : std::make_shared<NetworkFamily>()),
      transport_(place) {
  family_->add(*this);
}

Network::~Network() { family_->remove(*this); }

void Network::hear() {
  transport_.progress();
  transport_.hear([this](int peer, std::uint64_t kind, std::span<const std::byte> text) {
    take(peer, kind, text);
  });
}

void Network::take(int peer, std::uint64_t kind, std::span<const std::byte> text) {
  if (kind == kRow && text.size() == Roster::kRowBytes) {
    roster_.adopt_row(peer, text.data());
  } else if (kind == kLeaving) {
    roster_.adopt_leaving(peer, Roster::Leaving::kDone);
    transport_.let_go(peer);
  } else if (kind == kPoison && text.size() == sizeof(PoisonNotice)) {
    PoisonNotice notice{};
    std::memcpy(&notice, text.data(), sizeof notice);
    notice.text[sizeof notice.text - 1] = '\0';
    roster_.adopt_poison(peer, static_cast<Cause>(notice.cause), notice.peer, notice.text);
  }
}

void Network::tell(Kind kind, std::span<const std::byte> text, NetTransport::Urgency urgency) {
  const std::lock_guard lock(transport_.mutex());
  transport_.tell(kind, text, urgency);
}

void Network::tell_row() {
  const std::int64_t now = now_ns();
  if (now - told_ns_ < kTellRowNs) return;
  tell_row_now();
}

void Network::tell_row_now() {
  told_ns_ = now_ns();
  std::byte row[Roster::kRowBytes];
  roster_.copy_row(row);
  tell(kRow, row, NetTransport::Urgency::kRoutine);
}

void Network::tell_leaving() { tell(kLeaving, {}, NetTransport::Urgency::kUrgent); }

void Network::tell_poison(Cause cause, int peer, const std::string& text) {
  PoisonNotice notice{static_cast<std::uint32_t>(cause), peer, {}};
  std::snprintf(notice.text, sizeof notice.text, "%s", text.c_str());
  tell(kPoison, std::as_bytes(std::span(&notice, 1)), NetTransport::Urgency::kUrgent);
}

bool Network::settled() {
  const std::lock_guard lock(transport_.mutex());
  return transport_.settled();
}

int Network::lost_peer(std::string* why) {
  const std::lock_guard lock(transport_.mutex());
  const NetTransport::Broken& broken = transport_.first_broken();
  if (broken.peer < 0) return -1;
  const std::int64_t now = now_ns();
  if (broken_ns_ == 0) broken_ns_ = now;
  if (now - broken_ns_ < kGraceNs) return -1;
  *why = broken.why;
  return broken.peer;
}

// ---- Engine's part

Progress Engine::progress_over_network() {
  Network& network = *block_->network;
  if (++polls_ % kPollFamilyEvery == 0) network.family()->poll_others(network);
  const std::lock_guard lock(network.transport().mutex());
  // Each look at a network costs a system call: what can be done without one is done first.
  const Progress progress = advance_all();
  if (progress != Progress::kIdle) return progress;
  return network.transport().progress() ? advance_all() : Progress::kIdle;
}

std::shared_ptr<NetworkFamily> Engine::family() const {
  for (const SharedBlock* block = block_.get(); block != nullptr; block = block->upper.get()) {
    if (block->network != nullptr) return block->network->family();
  }
  return nullptr;
}

void Engine::stop_landing() {
  if (block_->network == nullptr) return;
  NetTransport& transport = block_->network->transport();
  const std::lock_guard lock(transport.mutex());
  transport.want_nothing();
  if (transport.borrows()) transport.stop();
}

std::string Engine::describe_network() const {
  return block_->network != nullptr ? block_->network->transport().describe() : std::string();
}

std::int64_t Engine::network_block_bytes() const {
  return block_->network != nullptr ? block_->network->transport().traits().slot_bytes : 0;
}

const Counters& Engine::all_counters() {
  if (block_->network != nullptr) counters_.network = block_->network->transport().counters();
  return counters_;
}

void Engine::reset_counters() {
  counters_ = {};
  if (block_->network != nullptr) block_->network->transport().reset_counters();
}

void Engine::exchange_notices() {
  if (const auto all = family()) all->hear_all();
  if (block_->network == nullptr) return;
  block_->network->tell_row();
  raise_if_poisoned();
  std::string why;
  const int lost = block_->network->lost_peer(&why);
  if (lost < 0) return;
  raise(Cause::kPeerGone, lost,
        block_->roster->name_of(lost) + ": " + why + "; " + block_->roster->stand());
}

void Engine::compare_rows() {
  const std::int64_t start_ns = now_ns();
  block_->network->tell_row_now();
  for (;;) {
    const std::int64_t waited_ns = now_ns() - start_ns;
    if (waited_ns > (can_name_foreign_call() ? kGraceNs : kNameNs)) return;
    if (block_->roster->poisoned()) return;
    exchange_notices();
    sched_yield();
  }
}

// Whether the row of the peer whose message does not fit says what that message is.
bool Engine::can_name_foreign_call() const {
  if (messages_->failed() != nullptr) {
    const Fault& fault = messages_->fault();
    return fault.kind != Fault::Kind::kForeignMessage ||
           block_->roster->sent_call(fault.peer, fault.found_flag).has_value();
  }
  for (const std::unique_ptr<Operation>& operation : operations_) {
    const Fault& fault = operation->execution.fault();
    if (!operation->running || fault.kind != Fault::Kind::kForeignMessage) continue;
    const std::uint64_t number = number_like(*operation, fault.found_flag);
    if (!block_->roster->call_of(fault.peer, number).has_value()) return false;
  }
  return true;
}

void Engine::tell_poison() {
  const Error error = block_->roster->poison_error();
  bool tells = false;
  for (SharedBlock* block = block_.get(); block != nullptr; block = block->upper.get()) {
    if (block->network == nullptr) continue;
    const bool own = block == block_.get();
    block->network->tell_poison(error.cause(), own ? error.peer() : -1, error.what());
    tells = true;
  }
  if (!tells) return;
  const std::int64_t start_ns = now_ns();
  for (bool settled = false; !settled && now_ns() - start_ns < kPoisonNs;) {
    settled = true;
    for (SharedBlock* block = block_.get(); block != nullptr; block = block->upper.get()) {
      if (block->network != nullptr) settled &= block->network->settled();
    }
    family()->hear_all();
    sched_yield();
  }
}

// What was sent must not be lost with the connection. Peers that leave at the same time are
// answered from here too, in whatever order they leave the family's communicators.
void Engine::farewell() {
  block_->network->tell_leaving();
  const std::int64_t start_ns = now_ns();
  while (!block_->network->settled() && now_ns() - start_ns < kFarewellNs) {
    family()->hear_all();
    if (block_->roster->poisoned()) return;
    sched_yield();
  }
}

}  // namespace sinew::comm
