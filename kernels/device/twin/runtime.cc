// The runtime seam on the host: devices, memory and what other processes map of it. stream.cc has
// the rest.
#include "kernels/device/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/device/twin/launch.h"
#include "kernels/device/twin/memory.h"
#include "kernels/device/twin/recording.h"

namespace sinew::device {

std::string unavailable() { return {}; }

int count() { return 1; }

void select(int device) {
  if (device != 0)
    throw UsageError("device " + std::to_string(device) + " does not exist; legal values: 0");
}

int selected() { return 0; }

const Properties& properties() {
  thread_local Properties result;
  const twin::Interpreter* interpreter = twin::Scope::current().interpreter;
  result = {.name = "host twin",
            .multiprocessors = twin::Scope::current().multiprocessors,
            .major = interpreter != nullptr ? interpreter->compute_major() : 9,
            .minor = 0,
            .memory_bytes = twin::kMemoryBytes,
            .shared_bytes_block_max = std::size_t{227} * 1024,
            .twin = true};
  return result;
}

bool can_reach(int device, int peer) { return device == 0 && peer == 0; }

void enable_peer(int peer) { select(peer); }

std::string bus_address() { return "twin"; }

LinkKind link_to(const std::string& address) {
  return address == bus_address() ? LinkKind::kTwin : LinkKind::kNone;
}

Memory::Memory(std::size_t size_bytes, MemoryKind kind) : size_bytes_(size_bytes), kind_(kind) {
  twin::refuse_in_recording("memory is allocated");
  if (kind != MemoryKind::kDevice && twin::awaits_peers())
    throw Error("device twin: this kind of memory is made while a kernel waits for a peer");
  data_ = twin::allocate_pages(size_bytes);
  twin::known_memory().add(data_, size_bytes,
                           kind == MemoryKind::kManaged ? twin::KnownMemory::Kind::kManaged
                                                        : twin::KnownMemory::Kind::kDevice);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    kind_ = other.kind_;
  }
  return *this;
}

void Memory::release() noexcept {
  if (data_ == nullptr) return;
  twin::spoil_recording("memory is freed");
  if (kind_ != MemoryKind::kDevice && twin::awaits_peers()) {
    std::fprintf(stderr,
                 "device twin: this kind of memory is freed while a kernel waits for a peer\n");
    std::abort();
  }
  twin::known_memory().remove(data_);
  twin::free_pages(data_);
  data_ = nullptr;
}

bool is_left_out(const char* name) {
  const char* removed = twin::Scope::current().removed;
  return removed != nullptr && std::strcmp(removed, name) == 0;
}

IpcHandle export_memory(const Memory& memory) {
  if (memory.kind() != MemoryKind::kShared)
    throw Error("device twin: only memory of kind kShared is named to other processes");
  return twin::export_pages(memory.data());
}

Mapping::Mapping(const IpcHandle& handle) {
  data_ = twin::import_pages(handle, size_bytes_);
  twin::known_memory().add(data_, size_bytes_);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void Mapping::release() noexcept {
  if (data_ == nullptr) return;
  twin::known_memory().remove(data_);
  twin::unmap_pages(data_, size_bytes_);
  data_ = nullptr;
}

}  // namespace sinew::device
