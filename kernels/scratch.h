// Scratch: memory a kernel needs while it runs, aligned to a cache line, freed at the end of the
// call. The C library keeps freed blocks after the first call, so in a loop this costs no page
// faults; a kernel may therefore allocate per call, but not per block.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace sinew::kernels {

struct FreeScratch {
  void operator()(void* memory) const { std::free(memory); }
};
template <typename T>
using Scratch = std::unique_ptr<T[], FreeScratch>;

// Uninitialised; count may be 0.
template <typename T>
Scratch<T> allocate_scratch(std::int64_t count) {
  constexpr std::size_t kLine = 64;
  const std::size_t size_bytes =
      (static_cast<std::size_t>(count) * sizeof(T) + kLine) / kLine * kLine;
  void* memory = std::aligned_alloc(kLine, size_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return Scratch<T>(static_cast<T*>(memory));
}

}  // namespace sinew::kernels
