// Fibers: stacks and the switch between them, with what the sanitizers need to follow it.
#pragma once

#include <cstddef>

namespace sinew::twin {

// Where execution continues. The context of the OS thread's own stack is adopted, all others are
// prepared.
struct Context {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // lowest address
  std::size_t stack_bytes = 0;
  void* sanitizer_fiber = nullptr;
  void* fake_stack = nullptr;
};

// Stacks for `count` fibers side by side, the lowest page of each not accessible. Throws Error when
// there is no memory.
[[nodiscard]] char* allocate_stacks(std::size_t count);
void free_stacks(char* stacks, std::size_t count);
// The fiber that runs on stack `index` of those.
void create_fiber(Context& context, char* stacks, std::size_t index);
void destroy_fiber(Context& context);
void adopt_thread(Context& context);

// Whether a fiber left in the middle of its work may be prepared again.
#ifdef SINEW_TWIN_ADDRESS
inline constexpr bool kStacksHoldAll = false;
#else
inline constexpr bool kStacksHoldAll = true;
#endif

// Makes the next switch to the context call entry on an empty stack. entry must call enter_fiber
// first and never return. `stagger` spreads the tops of the stacks over the cache's sets.
void prepare_fiber(Context& context, void (*entry)(), std::size_t stagger);
void enter_fiber();
enum class Leaving : bool { kForNow, kForGood };
void switch_fiber(Context& from, const Context& to, Leaving leaving);

// Happens-before edges for the race detector; nothing without it.
void order_release(void* token);
void order_acquire(void* token);
// order_release as if by a fiber that does not run.
void order_release_of(const Context& fiber, void* token);
// Whether the race detector looks at what the running fiber (or thread) reads and writes.
void watch_accesses(bool watched);
// Makes the detector forget all accesses to whole pages; their contents are lost.
void forget_pages(char* pages, std::size_t size_bytes);
// Marks memory as not accessible (and accessible) for the address checker; nothing without it.
void poison(const void* memory, std::size_t size_bytes);
void unpoison(const void* memory, std::size_t size_bytes);

}  // namespace sinew::twin
