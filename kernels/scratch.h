// Scratch: memory a kernel needs while it runs, aligned to a cache line. A thread keeps a few of
// the blocks it freed, so that in a loop a block costs no page faults: the C library gives large
// ones back to the system, and a fault costs some 2 us on a virtual machine, a third of the time of
// a product of 512 x 768 x 768 on two threads. A kernel may therefore allocate per call, but not
// per block. Blocks of a mebibyte and more lie on huge pages where the system has them.
//
// Threads: a block may be freed by another thread than the one that allocated it. What a thread
// kept is freed when it ends. Under AddressSanitizer nothing is kept, so that it sees every use of
// a freed block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sinew::kernels {

// Blocks of at most this many bytes are kept, kKeptBlocks of them a thread.
inline constexpr std::size_t kKeptBlockBytes = std::size_t{32} << 20;
inline constexpr int kKeptBlocks = 4;

// Throws std::bad_alloc. size_bytes may be 0.
[[nodiscard]] void* take_scratch(std::size_t size_bytes);
void give_back_scratch(void* memory) noexcept;

struct FreeScratch {
  void operator()(void* memory) const { give_back_scratch(memory); }
};
template <typename T>
using Scratch = std::unique_ptr<T[], FreeScratch>;

// Uninitialised; count may be 0.
template <typename T>
Scratch<T> allocate_scratch(std::int64_t count) {
  return Scratch<T>(static_cast<T*>(take_scratch(static_cast<std::size_t>(count) * sizeof(T))));
}

}  // namespace sinew::kernels
