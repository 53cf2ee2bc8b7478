#include "comm/device/cuda_ipc.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>

#include "comm/error.h"
#include "comm/process.h"

namespace sinew::comm {

// What a rank tells the others of its block.
struct PeerMemory::Card {
  device::IpcHandle handle;
  std::uint64_t program;  // of one process, unlike its number also where processes have namespaces
  std::uint64_t address;
  std::uint64_t start_time;
  int pid;
  int device;
  char bus_address[32];
  bool good;
};

namespace {

// The same in all calls of this process, different in every other.
std::uint64_t this_program() {
  static const int key = getpid();  // a forked child has its parent's value and another number
  static const std::uint64_t drawn =
      std::uint64_t{std::random_device{}()} << 32 | std::random_device{}();
  return key == getpid() ? drawn : drawn + static_cast<std::uint64_t>(getpid());
}

// What went wrong, or nothing.
std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const sinew::Error& error) {
    return error.what();
  }
  return {};
}

struct Report {
  char text[256];
};

// Collective: throws on every rank what the lowest rank that failed has to say.
void agree(Bootstrap& bootstrap, const std::string& failure) {
  Report mine{};
  std::snprintf(mine.text, sizeof mine.text, "%s", failure.c_str());
  const std::vector<Report> reports = bootstrap.exchange(mine);
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (reports[r].text[0] == '\0') continue;
    throw Error(Cause::kResource, bootstrap.rank(), static_cast<int>(r),
                "transport cuda_ipc: rank " + std::to_string(r) + ": " + reports[r].text);
  }
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

PeerMemory::PeerMemory(Bootstrap& bootstrap, std::size_t size_bytes)
    : rank_(bootstrap.rank()), peers_(static_cast<std::size_t>(bootstrap.world())) {
  Card mine{};
  std::string failure = failure_of([&] {
    memory_ = device::Memory(size_bytes, device::MemoryKind::kShared);
    device::Stream stream;
    stream.fill(memory_.data(), 0, memory_.size_bytes());
    stream.synchronize();
    const std::string address = device::bus_address();
    std::snprintf(mine.bus_address, sizeof mine.bus_address, "%s", address.c_str());
    place_ = device::properties().name + " (" + address + ")";
    if (world() > 1) mine.handle = device::export_memory(memory_);
    mine.program = this_program();
    mine.address = reinterpret_cast<std::uint64_t>(memory_.data());
    mine.pid = getpid();
    mine.start_time = process_start_time(mine.pid);
    mine.device = device::selected();
    mine.good = true;
  });
  const std::vector<Card> cards = bootstrap.exchange(mine);
  const bool all_good =
      std::all_of(cards.begin(), cards.end(), [](const Card& c) { return c.good; });
  if (all_good) failure = failure_of([&] { map(cards); });
  try {
    agree(bootstrap, failure);
  } catch (const Error&) {
    mappings_.clear();
    static_cast<void>(bootstrap.exchange(rank_));  // nobody maps what the others now free
    throw;
  }
}

void PeerMemory::map(const std::vector<Card>& cards) {
  const Card& own = cards[static_cast<std::size_t>(rank_)];
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const std::string failure = failure_of([&] { map_one(own, cards[r], peers_[r]); });
    if (failure.empty()) continue;
    throw sinew::Error("cannot map the memory of rank " + std::to_string(r) + " on device " +
                       cards[r].bus_address + ": " + failure);
  }
}

void PeerMemory::map_one(const Card& own, const Card& card, Peer& peer) {
  peer.pid = card.pid;
  peer.start_time = card.start_time;
  peer.link = device::link_to(card.bus_address);
  if (peer.link == device::LinkKind::kNone) {
    throw sinew::Error("no link from " + place_ +
                       "; all ranks must see all devices (CUDA_VISIBLE_DEVICES) and these must "
                       "have peer access");
  }
  if (card.program == own.program) {
    if (card.device != own.device) device::enable_peer(card.device);
    peer.data = reinterpret_cast<char*>(card.address);
  } else {
    mappings_.emplace_back(card.handle);
    peer.data = static_cast<char*>(mappings_.back().data());
  }
}

void PeerMemory::close(Bootstrap& bootstrap) {
  static_cast<void>(bootstrap.exchange(rank_));  // all kernels have ended
  mappings_.clear();
  static_cast<void>(bootstrap.exchange(rank_));  // nobody maps this rank's memory
}

bool PeerMemory::lines_arrive_whole() const {
  return std::none_of(peers_.begin(), peers_.end(),
                      [](const Peer& p) { return p.link == device::LinkKind::kPcie; });
}

std::string PeerMemory::describe() const {
  std::string text = "rank " + std::to_string(rank_) + " on " + place_;
  const char* before = " reaches ";
  for (const device::LinkKind kind : {device::LinkKind::kSame, device::LinkKind::kNvLink,
                                      device::LinkKind::kPcie, device::LinkKind::kTwin}) {
    std::vector<int> ranks;
    for (int r = 0; r < world(); ++r) {
      if (r != rank_ && link(r) == kind) ranks.push_back(r);
    }
    if (ranks.empty()) continue;
    text += before + ranks_text(ranks) + (kind == device::LinkKind::kSame ? " on " : " over ") +
            std::string(name_of(kind));
    before = ", ";
  }
  return text;
}

std::string PeerMemory::gone(int rank) const {
  const Peer& peer = at(rank);
  if (peer.pid == getpid() || peer.start_time == 0 || process_lives(peer.pid, peer.start_time))
    return {};
  return "(process " + std::to_string(peer.pid) + ") is dead";
}

}  // namespace sinew::comm
