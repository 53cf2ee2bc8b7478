#include "comm/regions.h"

#include <algorithm>

#include "sched/base/check.h"

namespace sinew::comm {

const Mapping* Regions::Region::view_of(int origin) const {
  for (std::size_t i = 0; i < origins.size(); ++i) {
    if (origins[i] == origin) return &views[i];
  }
  return nullptr;
}

void Regions::add(std::uint64_t key, int own_origin, std::vector<int> origins,
                  std::vector<Mapping> views) {
  CHECK_EQ(origins.size(), views.size());
  Region region{key, nullptr, 0, std::move(origins), std::move(views)};
  const Mapping* own = region.view_of(own_origin);
  CHECK(own != nullptr);
  region.own = own->data();
  region.size_bytes = own->size_bytes();
  regions_.push_back(std::move(region));
}

void Regions::remove(const std::byte* own_data) {
  std::erase_if(regions_, [&](const Region& region) { return region.own == own_data; });
}

Regions::Place Regions::find(const std::byte* data, std::int64_t size_bytes,
                             int peer_origin) const {
  for (const Region& region : regions_) {
    const auto offset =
        reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(region.own);
    if (offset >= region.size_bytes) continue;
    if (offset + static_cast<std::uint64_t>(size_bytes) > region.size_bytes) return {};
    return region.view_of(peer_origin) != nullptr ? Place{region.key, offset} : Place{};
  }
  return {};
}

const std::byte* Regions::resolve(int peer_origin, Place place, std::int64_t size_bytes) const {
  for (const Region& region : regions_) {
    if (region.key != place.key) continue;
    const Mapping* view = region.view_of(peer_origin);
    if (view == nullptr ||
        place.offset + static_cast<std::uint64_t>(size_bytes) > view->size_bytes())
      return nullptr;
    return view->data() + place.offset;
  }
  return nullptr;
}

}  // namespace sinew::comm
