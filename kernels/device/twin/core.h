// What a kernel's thread sees of the twin: who it is, and the operations in which it waits for
// others. The wrappers of device/gpu/ are written on top of it; kernels never include this.
//
// Each thread of a block is a fiber; all fibers of a launch share one OS thread and switch only
// inside the functions below. None of them allocates or uses a standard container, and the twin's
// core is compiled without sanitizers: the race detector then sees the kernels' accesses and the
// orderings that CUDA promises, no more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sinew::twin {

// Where a kernel calls. As std::source_location, which clang 14 does not have with this library.
struct Site {
  const char* file = "";
  unsigned line = 0;

  static constexpr Site current(const char* file = __builtin_FILE(),
                                unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Index {
  unsigned x;
  unsigned y;
  unsigned z;
};

struct Thread {
  Index thread_index;
  Index block_index;
  Index block_extent;
  Index grid_extent;
  const char* removed;  // the mutant of this launch, or null
};

extern constinit thread_local Thread* current;  // null outside a kernel

// Ends the launch: the text, the place and where the other threads wait become the launch's error.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[nodiscard]] bool is_removed(const char* name);

// A warp operation: every lane of the mask deposits a pointer to its argument; the last one to
// arrive computes all results (into the same arguments) and lets the others go. arguments[lane] is
// null outside the mask.
struct WarpOp {
  const char* name;
  void (*compute)(std::uint32_t mask, void* const* arguments);
  bool orders_memory;  // __syncwarp does, a shuffle does not
};
void warp_rendezvous(std::uint32_t mask, const WarpOp& op, void* argument, const Site& site);
[[nodiscard]] unsigned lane_index();

// Barrier `id` of the block; threads == 0 means all that have not exited. Returns the number of
// threads that passed a true predicate.
int block_barrier(int id, int threads, bool predicate, const Site& site);
void block_arrive(int id, int threads, const Site& site);

// A turn of a busy wait: lets other threads, then other processes, run.
void spin_turn(const Site& site);
// Under the random orders, lets others run now and then; every access that peers can see passes
// here.
void preemption_point(const Site& site);

// Shared memory of the block. One object per declaration (key) and block.
[[nodiscard]] void* shared_object(const void* key, std::size_t size_bytes, std::size_t alignment);
[[nodiscard]] void* shared_dynamic();
// What __cvta_generic_to_shared gives; fails when the pointer is not in this block's shared memory.
[[nodiscard]] std::uint32_t shared_address(const void* pointer);

// cp.async: source_bytes of size_bytes are copied, the rest becomes zero.
struct AsyncCopy {
  void* target;
  const void* source;
  int size_bytes;
  int source_bytes;
};
// True when the copy is to happen at once; else it is queued.
[[nodiscard]] bool async_copy_issue(const AsyncCopy& copy, const Site& site);
void async_copy_commit();
// The next copy that must be complete when only the newest `groups` groups may be pending; null
// when there is none.
[[nodiscard]] const AsyncCopy* async_copy_next(int groups);

}  // namespace sinew::twin
