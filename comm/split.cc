// Engine's collective set-up work after creation: splitting, and symmetric allocations. Both
// exchange blobs over the setup lanes of the existing communicator.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "comm/engine.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::comm {

namespace {

// Some ranks of an engine as a bootstrap of their own.
class MemberBootstrap final : public Bootstrap {
 public:
  MemberBootstrap(Engine& engine, std::vector<int> members, const CallInfo& call)
      : engine_(engine), members_(std::move(members)), call_(call) {}

  [[nodiscard]] int rank() const override {
    return static_cast<int>(std::find(members_.begin(), members_.end(), engine_.rank()) -
                            members_.begin());
  }
  [[nodiscard]] int world() const override { return static_cast<int>(members_.size()); }
  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    engine_.gather_from(members_, call_, mine, all);
  }

 private:
  Engine& engine_;
  std::vector<int> members_;
  CallInfo call_;
};

std::vector<int> everyone(int world) {
  std::vector<int> members;
  for (int rank = 0; rank < world; ++rank) members.push_back(rank);
  return members;
}

}  // namespace

void Engine::gather_from(const std::vector<int>& members, const CallInfo& call,
                         std::span<const std::byte> mine, std::byte* all) {
  const auto size = static_cast<std::int64_t>(mine.size());
  std::vector<Transfer*> transfers;
  for (std::size_t i = 0; i < members.size(); ++i) {
    std::byte* slot = all + i * mine.size();
    if (members[i] == rank_) {
      std::memcpy(slot, mine.data(), mine.size());
      continue;
    }
    MessageAsk ask{.call = call, .peer = members[i], .lane = kSetupLane, .size = size};
    ask.direction = MessageAsk::Direction::kSend;
    ask.source = mine.data();
    transfers.push_back(&start_transfer(ask));
    ask.direction = MessageAsk::Direction::kReceive;
    ask.source = nullptr;
    ask.target = slot;
    transfers.push_back(&start_transfer(ask));
  }
  for (Transfer* transfer : transfers) wait(*transfer);
}

std::unique_ptr<Engine> Engine::split(int color, int key) {
  struct Wish {
    int color;
    int key;
  };
  const CallInfo call{.kind = CallKind::kSplit};
  raise_if_poisoned();
  announce(call);
  const std::vector<Wish> wishes =
      MemberBootstrap(*this, everyone(world_), call).exchange(Wish{color, key});
  std::unique_ptr<Engine> result;
  if (color >= 0) {
    std::vector<int> members;
    for (int peer = 0; peer < world_; ++peer) {
      if (wishes[static_cast<std::size_t>(peer)].color == color) members.push_back(peer);
    }
    std::stable_sort(members.begin(), members.end(), [&](int left, int right) {
      return wishes[static_cast<std::size_t>(left)].key <
             wishes[static_cast<std::size_t>(right)].key;
    });
    std::vector<int> origins;
    TransportChoice choice = choice_;
    choice.hosts.clear();
    for (const int member : members) {
      origins.push_back(origins_[static_cast<std::size_t>(member)]);
      choice.hosts.push_back(choice_.hosts[static_cast<std::size_t>(member)]);
    }
    MemberBootstrap bootstrap(*this, members, call);
    // The other ranks still compete for the same cores: what they are too many for here, they are
    // too many for there.
    Options options = options_;
    if (options.spin_us < 0 && policy_.spins == 0) options.spin_us = 0;
    result = std::make_unique<Engine>(Parts{.bootstrap = &bootstrap,
                                            .memory = memory_,
                                            .regions = regions_,
                                            .upper = block_,
                                            .origins = origins,
                                            .choice = choice},
                                      std::move(options));
  }
  block_->roster->end(calls_);
  return result;
}

std::byte* Engine::allocate(std::size_t size_bytes) {
  if (size_bytes > PTRDIFF_MAX) {
    throw UsageError(
        fmt::format("allocate of {} bytes; legal values: 0 to {}", size_bytes, PTRDIFF_MAX));
  }
  const CallInfo call{.kind = CallKind::kAllocate, .count = static_cast<std::int64_t>(size_bytes)};
  raise_if_poisoned();
  announce(call);
  MemberBootstrap bootstrap(*this, everyone(world_), call);
  std::vector<Mapping> views =
      memory_->share(bootstrap, std::max<std::size_t>(size_bytes, 1), choice_.hosts);
  // Rank 0 names the region: its number in the job and its own count make the name unique
  // everywhere.
  const std::uint64_t proposal =
      static_cast<std::uint64_t>(origins_[static_cast<std::size_t>(rank_)] + 1) << 32 |
      regions_->next_number();
  const std::uint64_t key = bootstrap.exchange(proposal)[0];
  std::byte* own = views[static_cast<std::size_t>(rank_)].data();
  std::vector<int> origins;
  std::vector<Mapping> mapped;
  for (int peer = 0; peer < world_; ++peer) {
    if (!maps(peer)) continue;
    origins.push_back(origins_[static_cast<std::size_t>(peer)]);
    mapped.push_back(std::move(views[static_cast<std::size_t>(peer)]));
  }
  regions_->add(key, origins_[static_cast<std::size_t>(rank_)], std::move(origins),
                std::move(mapped));
  block_->roster->end(calls_);
  return own;
}

}  // namespace sinew::comm
