#include "kernels/scratch.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace sinew::kernels {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// From here on a huge page is less than half empty.
constexpr std::size_t kLeastHuge = kHugePage / 2;

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kKeptAtMost = 0;
#else
constexpr std::size_t kKeptAtMost = kKeptBlockBytes;
#endif

// The line before a block.
struct Header {
  std::size_t size_bytes = 0;  // of the block
};

Header* header_of(void* memory) {
  return reinterpret_cast<Header*>(static_cast<std::byte*>(memory) - kLine);
}

void* allocate(std::size_t size_bytes) {
  const bool is_huge = size_bytes >= kLeastHuge;
  const std::size_t unit = is_huge ? kHugePage : kLine;
  const std::size_t whole = (size_bytes + kLine + unit - 1) / unit * unit;
  void* start = std::aligned_alloc(unit, whole);
  if (start == nullptr) throw std::bad_alloc();
  // A hint; where the system does not follow it, ordinary pages serve.
  if (is_huge) (void)madvise(start, whole, MADV_HUGEPAGE);
  void* memory = static_cast<std::byte*>(start) + kLine;
  new (header_of(memory)) Header{whole - kLine};
  return memory;
}

void release(void* memory) { std::free(header_of(memory)); }

// The blocks that this thread keeps, null where there is none.
struct Kept {
  void* blocks[kKeptBlocks] = {};
  ~Kept();
};
thread_local Kept kept;
// Blocks may be freed by destructors that run after the one of `kept`.
thread_local bool is_closed = false;

Kept::~Kept() {
  is_closed = true;
  for (void*& block : blocks) {
    if (block != nullptr) release(block);
    block = nullptr;
  }
}

}  // namespace

void* take_scratch(std::size_t size_bytes) {
  void** best = nullptr;
  if (!is_closed) {
    for (void*& block : kept.blocks) {
      if (block == nullptr || header_of(block)->size_bytes < size_bytes) continue;
      if (best == nullptr || header_of(block)->size_bytes < header_of(*best)->size_bytes)
        best = &block;
    }
  }
  if (best == nullptr) return allocate(size_bytes);
  void* found = *best;
  *best = nullptr;
  return found;
}

void give_back_scratch(void* memory) noexcept {
  if (memory == nullptr) return;
  if (is_closed || header_of(memory)->size_bytes > kKeptAtMost) return release(memory);
  // In place of none, else of the smallest, if that is smaller.
  void** place = &kept.blocks[0];
  for (void*& block : kept.blocks) {
    if (block == nullptr) {
      block = memory;
      return;
    }
    if (header_of(block)->size_bytes < header_of(*place)->size_bytes) place = &block;
  }
  if (header_of(*place)->size_bytes < header_of(memory)->size_bytes) std::swap(*place, memory);
  release(memory);
}

}  // namespace sinew::kernels
