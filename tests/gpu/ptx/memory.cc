#include "tests/gpu/ptx/memory.h"

#include <algorithm>
#include <cstring>

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

// What a load finds of a store that only its thread or block knows.
void overlay(const Stores& stores, const char* place, void* value, std::size_t size_bytes) {
  for (const Store& store : stores) {
    if (!overlap(store, place, size_bytes)) continue;
    for (std::size_t i = 0; i < size_bytes; ++i) {
      const char* byte = place + i;
      if (byte >= store.place && byte < store.place + store.size_bytes)
        static_cast<std::byte*>(value)[i] =
            store.bytes[static_cast<std::size_t>(byte - store.place)];
    }
  }
}

}  // namespace

void Memory::store(View& view, char* place, const void* value, std::size_t size_bytes) {
  if (!weak_) return write(place, value, size_bytes);
  Store store;
  store.place = place;
  store.size_bytes = size_bytes;
  std::memcpy(store.bytes.data(), value, size_bytes);
  // A place that is not there is found by the store, not later by somebody else.
  *static_cast<const volatile char*>(place);
  view.own.push_back(store);
  if (view.own.size() > kStoresMost || random_.below(8) == 0) commit_some(view);
}

void Memory::load(const View& view, const char* place, void* value, std::size_t size_bytes) const {
  read(place, value, size_bytes);
  if (!weak_) return;
  overlay(*view.block, place, value, size_bytes);
  overlay(view.own, place, value, size_bytes);
}

void Memory::share(View& view) {
  view.block->insert(view.block->end(), view.own.begin(), view.own.end());
  view.own.clear();
}

void Memory::release(View& view) {
  if (!weak_) return;
  commit_all(*view.block);
  commit_all(view.own);
}

void Memory::turn(View& view) {
  if (!weak_) return;
  for (std::uint32_t stores = random_.below(4); stores > 0; --stores) commit_some(view);
  if (random_.below(16) == 0) release(view);
}

void Memory::commit_some(View& view) {
  if (!view.block->empty()) commit_one(*view.block, random_.below(view.block->size()));
  if (view.own.empty()) return;
  const std::size_t chosen = random_.below(view.own.size());
  commit_overlapping(*view.block, view.own[chosen].place, view.own[chosen].size_bytes);
  commit_one(view.own, chosen);
}

// The store of that index, or an earlier one that must become visible before it.
void Memory::commit_one(Stores& stores, std::size_t index) {
  for (std::size_t i = 0; i < index;) {
    const bool before = overlap(stores[i], stores[index].place, stores[index].size_bytes);
    if (before) index = i;
    i = before ? 0 : i + 1;
  }
  const Store& store = stores[index];
  write(store.place, store.bytes.data(), store.size_bytes);
  stores.erase(stores.begin() + static_cast<std::ptrdiff_t>(index));
}

void Memory::commit_overlapping(Stores& stores, const char* place, std::size_t size_bytes) {
  std::erase_if(stores, [&](const Store& store) {
    if (!overlap(store, place, size_bytes)) return false;
    write(store.place, store.bytes.data(), store.size_bytes);
    return true;
  });
}

void Memory::commit_all(Stores& stores) {
  for (const Store& store : stores) write(store.place, store.bytes.data(), store.size_bytes);
  stores.clear();
}

}  // namespace sinew::ptx
