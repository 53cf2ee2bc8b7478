#include "tests/gpu/ptx/memory.h"

#include <algorithm>
#include <cstring>
#include <ranges>

namespace sinew::ptx {

namespace {

// Most stores that one thread keeps back.
constexpr std::size_t kStoresMost = 48;

template <typename T>
void write_as(char* place, const void* value) {
  T bits;
  std::memcpy(&bits, value, sizeof(T));
  __atomic_store_n(reinterpret_cast<T*>(place), bits, __ATOMIC_RELEASE);
}

// Of 1, 2, 4 or 8 bytes at once; a line by words, its flag, the last, at the end.
void write(char* place, const void* value, std::size_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return write_as<std::uint8_t>(place, value);
    case 2:
      return write_as<std::uint16_t>(place, value);
    case 4:
      return write_as<std::uint32_t>(place, value);
    default:
      for (std::size_t i = 0; i < size_bytes; i += 8)
        write_as<std::uint64_t>(place + i, static_cast<const char*>(value) + i);
  }
}

template <typename T>
void read_as(const char* place, void* value) {
  const T bits = __atomic_load_n(reinterpret_cast<const T*>(place), __ATOMIC_ACQUIRE);
  std::memcpy(value, &bits, sizeof(T));
}

// A line's flag is read first.
void read(const char* place, void* value, std::size_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return read_as<std::uint8_t>(place, value);
    case 2:
      return read_as<std::uint16_t>(place, value);
    case 4:
      return read_as<std::uint32_t>(place, value);
    default:
      for (std::size_t i = size_bytes; i > 0; i -= 8)
        read_as<std::uint64_t>(place + i - 8, static_cast<char*>(value) + i - 8);
  }
}

bool overlap(const Store& store, const char* place, std::size_t size_bytes) {
  return store.place < place + size_bytes && place < store.place + store.size_bytes;
}

// What a load finds where a store's bytes are not those that lie there.
void overlay(const Store& store, const char* place, void* value, std::size_t size_bytes) {
  for (std::size_t i = 0; i < size_bytes; ++i) {
    const char* byte = place + i;
    if (byte >= store.place && byte < store.place + store.size_bytes)
      static_cast<std::byte*>(value)[i] = store.bytes[static_cast<std::size_t>(byte - store.place)];
  }
}

// Of stores that only its thread or block knows.
void overlay(const Stores& stores, const char* place, void* value, std::size_t size_bytes) {
  for (const Store& store : stores) {
    if (overlap(store, place, size_bytes)) overlay(store, place, value, size_bytes);
  }
}

// The words of 8 bytes that an access touches, by number.
std::ranges::iota_view<std::uintptr_t, std::uintptr_t> words_of(const char* place,
                                                                std::size_t size_bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(place);
  return {begin / 8, (begin + size_bytes + 7) / 8};
}

}  // namespace

std::uint64_t History::now() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void History::write(char* place, const void* value, std::size_t size_bytes, const void* writer) {
  const std::lock_guard lock(mutex_);
  Replaced replaced;
  replaced.writer = writer;
  replaced.old.place = place;
  replaced.old.size_bytes = size_bytes;
  ptx::read(place, replaced.old.bytes.data(), size_bytes);
  ptx::write(place, value, size_bytes);
  latest_.push_back(replaced);
  if (latest_.size() > kKept) latest_.pop_front();
  ++count_;
}

void History::read(const char* place, void* value, std::size_t size_bytes, std::uint64_t since,
                   const void* reader, twin::Random& random) const {
  const std::lock_guard lock(mutex_);
  ptx::read(place, value, size_bytes);
  const std::uint64_t most = std::min<std::uint64_t>(count_ - since, latest_.size());
  if (most == 0) return;
  const std::uint64_t back = random.below(static_cast<std::uint32_t>(most) + 1);
  for (std::uint64_t i = 0; i < back; ++i) {
    const Replaced& replaced = latest_[latest_.size() - 1 - i];
    if (!overlap(replaced.old, place, size_bytes)) continue;
    if (replaced.writer == reader) return;
    overlay(replaced.old, place, value, size_bytes);
  }
}

void History::note_load(const char* place, std::size_t size_bytes, const void* reader) {
  const std::lock_guard lock(mutex_);
  for (const std::uintptr_t each : words_of(place, size_bytes))
    loaded_[each % kPlaces] = {place, size_bytes, reader, count_};
}

void History::note_store(const char* place, std::size_t size_bytes, std::uint64_t since,
                         const void* writer) {
  const std::lock_guard lock(mutex_);
  for (const std::uintptr_t each : words_of(place, size_bytes)) {
    const Loaded& loaded = loaded_[each % kPlaces];
    const bool touched =
        loaded.place < place + size_bytes && place < loaded.place + loaded.size_bytes;
    if (!touched || loaded.reader == writer || loaded.moment <= since) continue;
    ++overtaking_;
    return;
  }
}

std::uint64_t History::overtaking() const {
  const std::lock_guard lock(mutex_);
  return overtaking_;
}

View Memory::view_of(BlockView& block) const {
  return {{}, &block, history_ == nullptr ? 0 : history_->now()};
}

void Memory::store(View& view, char* place, const void* value, std::size_t size_bytes) {
  if (history_ == nullptr) return write(place, value, size_bytes);
  Store store;
  store.place = place;
  store.size_bytes = size_bytes;
  std::memcpy(store.bytes.data(), value, size_bytes);
  // A place that is not there is found by the store, not later by somebody else.
  *static_cast<const volatile char*>(place);
  history_->note_store(place, size_bytes, view.learned, view.block);
  view.own.push_back(store);
  if (view.own.size() > kStoresMost || random_.below(8) == 0) commit_some(view);
}

void Memory::load(const View& view, const char* place, void* value, std::size_t size_bytes) const {
  read(place, value, size_bytes);
  if (history_ == nullptr) return;
  overlay(view.block->stores, place, value, size_bytes);
  overlay(view.own, place, value, size_bytes);
}

void Memory::load_plain(const View& view, const char* place, void* value, std::size_t size_bytes) {
  if (history_ != nullptr) history_->note_load(place, size_bytes, view.block);
  if (history_ == nullptr || random_.below(2) == 0) return load(view, place, value, size_bytes);
  history_->read(place, value, size_bytes, view.learned, view.block, random_);
  overlay(view.block->stores, place, value, size_bytes);
  overlay(view.own, place, value, size_bytes);
}

void Memory::acquire(View& view) const {
  if (history_ != nullptr) view.learned = history_->now();
}

void Memory::share(View& view) {
  Stores& block = view.block->stores;
  block.insert(block.end(), view.own.begin(), view.own.end());
  view.own.clear();
  view.block->learned = std::max(view.block->learned, view.learned);
}

void Memory::learn(View& view) const { view.learned = std::max(view.learned, view.block->learned); }

void Memory::release(View& view) {
  if (history_ == nullptr) return;
  commit_all(view, view.block->stores);
  commit_all(view, view.own);
}

void Memory::turn(View& view) {
  if (history_ == nullptr) return;
  for (std::uint32_t stores = random_.below(4); stores > 0; --stores) commit_some(view);
  if (random_.below(16) == 0) release(view);
}

void Memory::commit(const View& view, const Store& store) {
  history_->write(store.place, store.bytes.data(), store.size_bytes, view.block);
}

void Memory::commit_some(View& view) {
  Stores& block = view.block->stores;
  if (!block.empty()) commit_one(view, block, random_.below(block.size()));
  if (view.own.empty()) return;
  const std::size_t chosen = random_.below(view.own.size());
  commit_overlapping(view, view.own[chosen].place, view.own[chosen].size_bytes);
  commit_one(view, view.own, chosen);
}

// The store of that index, or an earlier one that must become visible before it.
void Memory::commit_one(const View& view, Stores& stores, std::size_t index) {
  for (std::size_t i = 0; i < index;) {
    const bool before = overlap(stores[i], stores[index].place, stores[index].size_bytes);
    if (before) index = i;
    i = before ? 0 : i + 1;
  }
  commit(view, stores[index]);
  stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(index));
}

// Of the block's.
void Memory::commit_overlapping(const View& view, const char* place, std::size_t size_bytes) {
  std::erase_if(view.block->stores, [&](const Store& store) {
    if (!overlap(store, place, size_bytes)) return false;
    commit(view, store);
    return true;
  });
}

void Memory::commit_all(const View& view, Stores& stores) {
  for (const Store& store : stores) commit(view, store);
  stores.clear();
}

}  // namespace sinew::ptx
