#include "kernels/device/twin/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sched/base/check.h"
#include "sched/base/error.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// The core is compiled without instrumentation, so the usual compiler macros do not tell; the build
// says which sanitizer the rest of the program uses.
#if defined(SINEW_TWIN_ADDRESS)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(SINEW_TWIN_THREAD)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);  // reads and writes, in truth
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#endif

namespace sinew::twin {

namespace {

constexpr std::size_t kPage = 4096;
#if defined(SINEW_TWIN_ADDRESS)
constexpr std::size_t kStackBytes = 256 * 1024;  // red zones around every array
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif

}  // namespace

#if defined(__x86_64__)
// The System V calling convention keeps six registers over a call; the return address is on the
// stack.
extern "C" void sinew_twin_switch(void** save, void* restore);
asm(R"(.text
.globl sinew_twin_switch
.hidden sinew_twin_switch
.type sinew_twin_switch,@function
sinew_twin_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sinew_twin_switch,.-sinew_twin_switch
)");
#endif

char* allocate_stacks(std::size_t count) {
  const std::size_t size_bytes = count * kStackBytes;
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error("device twin: no memory for the stacks of " + std::to_string(count) + " threads");
  }
  char* stacks = static_cast<char*>(memory);
#if !defined(SINEW_TWIN_THREAD)  // whose reports read the list of all mappings, which guards would
                                 // make long
  for (std::size_t i = 0; i < count; ++i) mprotect(stacks + i * kStackBytes, kPage, PROT_NONE);
#endif
  return stacks;
}

void free_stacks(char* stacks, std::size_t count) {
  unpoison(stacks, count * kStackBytes);
  munmap(stacks, count * kStackBytes);
}

void create_fiber(Context& context, char* stacks, std::size_t index) {
  context.stack = stacks + index * kStackBytes;
  context.stack_bytes = kStackBytes;
#if defined(SINEW_TWIN_THREAD)
  context.sanitizer_fiber = __tsan_create_fiber(0);
#endif
}

void destroy_fiber(Context& context) {
#if defined(SINEW_TWIN_THREAD)
  __tsan_destroy_fiber(context.sanitizer_fiber);
#endif
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(context.stack_pointer);
#endif
  context = Context{};
}

void adopt_thread(Context& context) {
  pthread_attr_t attributes;
  void* stack = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &context.stack_bytes);
  pthread_attr_destroy(&attributes);
  context.stack = static_cast<char*>(stack);
#if defined(SINEW_TWIN_THREAD)
  context.sanitizer_fiber = __tsan_get_current_fiber();
#endif
#if !defined(__x86_64__)
  if (context.stack_pointer == nullptr) context.stack_pointer = new ucontext_t;
#endif
}

void prepare_fiber(Context& context, void (*entry)(), std::size_t stagger) {
  context.fake_stack = nullptr;
  const std::size_t usable = context.stack_bytes - stagger % kPage;
#if defined(__x86_64__)
  // Six zero registers and the return address; the entry finds its stack aligned as after a call.
  const auto top = (reinterpret_cast<std::uintptr_t>(context.stack) + usable) & ~std::uintptr_t{63};
  auto* frame = reinterpret_cast<void**>(top - 64);
  std::memset(frame, 0, 64);
  frame[6] = reinterpret_cast<void*>(entry);
  context.stack_pointer = frame;
#else
  if (context.stack_pointer == nullptr) context.stack_pointer = new ucontext_t;
  auto* state = static_cast<ucontext_t*>(context.stack_pointer);
  getcontext(state);
  state->uc_stack.ss_sp = context.stack;
  state->uc_stack.ss_size = usable;
  state->uc_link = nullptr;
  makecontext(state, entry, 0);
#endif
}

void enter_fiber() {
#if defined(SINEW_TWIN_ADDRESS)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

void switch_fiber(Context& from, const Context& to, Leaving leaving) {
#if defined(SINEW_TWIN_ADDRESS)
  __sanitizer_start_switch_fiber(leaving == Leaving::kForGood ? nullptr : &from.fake_stack,
                                 to.stack, to.stack_bytes);
#else
  static_cast<void>(leaving);
#endif
#if defined(SINEW_TWIN_THREAD)
  __tsan_switch_to_fiber(to.sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
  sinew_twin_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(static_cast<ucontext_t*>(from.stack_pointer),
              static_cast<ucontext_t*>(to.stack_pointer));
#endif
#if defined(SINEW_TWIN_ADDRESS)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void order_release([[maybe_unused]] void* token) {
#if defined(SINEW_TWIN_THREAD)
  __tsan_release(token);
#endif
}

void order_release_of([[maybe_unused]] const Context& fiber, [[maybe_unused]] void* token) {
#if defined(SINEW_TWIN_THREAD)
  void* const running = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
  __tsan_release(token);
  __tsan_switch_to_fiber(running, __tsan_switch_to_fiber_no_sync);
#endif
}

void order_acquire([[maybe_unused]] void* token) {
#if defined(SINEW_TWIN_THREAD)
  __tsan_acquire(token);
#endif
}

void watch_accesses([[maybe_unused]] bool watched) {
#if defined(SINEW_TWIN_THREAD)
  (watched ? AnnotateIgnoreReadsEnd : AnnotateIgnoreReadsBegin)(__FILE__, __LINE__);
#endif
}

void forget_pages([[maybe_unused]] char* pages, [[maybe_unused]] std::size_t size_bytes) {
#if defined(SINEW_TWIN_THREAD)
  CHECK(mmap(pages, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != MAP_FAILED);
#endif
}

void poison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t size_bytes) {
#if defined(SINEW_TWIN_ADDRESS)
  __asan_poison_memory_region(memory, size_bytes);
#endif
}

void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t size_bytes) {
#if defined(SINEW_TWIN_ADDRESS)
  __asan_unpoison_memory_region(memory, size_bytes);
#endif
}

}  // namespace sinew::twin
