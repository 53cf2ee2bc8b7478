#include "comm/placement.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "sched/base/error.h"

namespace sinew::comm {

namespace {

thread_local std::weak_ptr<Placement> placement_of_thread;

}  // namespace

bool spreads_ranks() {
  const char* text = std::getenv(kSpreadVariable);
  if (text == nullptr || std::string_view(text) == "0") return false;
  if (std::string_view(text) == "1") return true;
  throw UsageError(
      fmt::format("{}='{}' is unknown: legal are 0 (ranks that outnumber the cores go "
                  "where the kernel likes), 1 (they are spread over them)",
                  kSpreadVariable, text));
}

struct Placement::Mask {
  cpu_set_t set;
};

int ranks_per_core(const Neighbours& ranks) {
  const Cores& mine = ranks.cores[ranks.own];
  int cores = 0;
  for (const std::uint64_t word : mine.mask) cores += __builtin_popcountll(word);
  const auto alike = static_cast<int>(std::ranges::count_if(
      ranks.cores, [&](const Cores& rank) { return std::ranges::equal(mine.mask, rank.mask); }));
  return cores > 1 && alike > cores && alike % cores == 0 ? alike / cores : 0;
}

std::vector<int> fixed_cores(const Neighbours& ranks, bool spread) {
  std::vector<int> cores;
  for (std::size_t rank = 0; rank < ranks.cores.size(); ++rank) {
    const Neighbours other{ranks.cores, rank};
    int allowed = 0;
    for (const std::uint64_t word : ranks.cores[rank].mask) allowed += __builtin_popcountll(word);
    const bool fixed = allowed == 1 || (spread && ranks_per_core(other) > 0);
    cores.push_back(fixed ? share_of_cores(other).front() : -1);
  }
  return cores;
}

std::shared_ptr<Placement> Placement::of_thread(const Neighbours& ranks) {
  std::shared_ptr<Placement> placement = placement_of_thread.lock();
  if (placement == nullptr) {
    placement.reset(new Placement(ranks));
    placement_of_thread = placement;
  }
  return placement;
}

Placement::Placement(const Neighbours& ranks) {
  const bool may = spreads_ranks();
  const auto count = static_cast<int>(ranks.cores.size());
  const int cores = count_cores(ranks.cores);
  if (count <= cores) return;
  text_ = fmt::format("{} ranks share {} core{}", count, cores, cores == 1 ? "" : "s");
  const int each = ranks_per_core(ranks);
  if (each == 0) {
    if (cores > 1) text_ += ", where the kernel or the launcher puts them";
    return;
  }
  if (!may) {
    text_ +=
        fmt::format(", where the kernel puts them ({}=1 keeps {} on each)", kSpreadVariable, each);
    return;
  }
  auto before = std::make_unique<Mask>();
  cpu_set_t one;
  CPU_ZERO(&one);
  core_ = share_of_cores(ranks).front();
  CPU_SET(static_cast<std::size_t>(core_), &one);
  if (sched_getaffinity(0, sizeof before->set, &before->set) != 0 ||
      sched_setaffinity(0, sizeof one, &one) != 0) {
    text_ += ", where the kernel puts them (it refuses to keep one on its core)";
    return;
  }
  before_ = std::move(before);
  text_ += fmt::format(", {} kept on each ({}=0 leaves them to the kernel)", each, kSpreadVariable);
}

Placement::~Placement() {
  if (before_ == nullptr) return;
  // Cores that someone else has given the thread meanwhile are theirs to take back.
  cpu_set_t now;
  if (sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 1 &&
      CPU_ISSET(static_cast<std::size_t>(core_), &now))
    static_cast<void>(sched_setaffinity(0, sizeof before_->set, &before_->set));
}

}  // namespace sinew::comm
