#include "kernels/device/twin/engine.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "kernels/device/twin/state.h"
#include "sched/base/error.h"

namespace sinew::twin {

std::string refuse_shape(const device::LaunchShape& shape, const Config& config) {
  const std::uint64_t threads = shape.block.count();
  if (threads == 0 || threads > kThreadsBlockMax || shape.block.z > 64) {
    return "a block has 1 to 1024 threads, at most 64 in z; asked for " + std::to_string(threads);
  }
  if (shape.grid.count() == 0 || shape.grid.x > 0x7fffffffU || shape.grid.y > 0xffffU ||
      shape.grid.z > 0xffffU) {
    return "a grid has 1 to 2^31-1 blocks in x and 1 to 65535 in y and z";
  }
  if (shape.shared_bytes > kDynamicBytesMax) {
    return "a block has at most 227 KiB of shared memory; asked for " +
           std::to_string(shape.shared_bytes) + " bytes";
  }
  if (shape.residency == device::Residency::kAllBlocks &&
      shape.grid.count() > static_cast<std::uint64_t>(config.multiprocessors)) {
    return "the blocks of this kernel wait for one another and must fit at once: at most " +
           std::to_string(config.multiprocessors) + ", asked for " +
           std::to_string(shape.grid.count());
  }
  return {};
}

namespace {

Index index_of(std::uint64_t number, const device::Extent& extent) {
  return {static_cast<unsigned>(number % extent.x),
          static_cast<unsigned>(number / extent.x % extent.y),
          static_cast<unsigned>(number / (std::uint64_t{extent.x} * extent.y))};
}

Index to_index(const device::Extent& extent) { return {extent.x, extent.y, extent.z}; }

// Shared memory starts as NaN in every format, and only what is declared may be touched.
void reset_arena(Block& block) {
  const std::size_t used = kDynamicOffset + block.dynamic_bytes;
  unpoison(block.arena, kArenaBytes);
  forget_pages(block.arena, (used + 4095) / 4096 * 4096);
  std::memset(block.arena, 0xff, used);
  poison(block.arena, kArenaBytes);
  unpoison(block.arena + kDynamicOffset, block.dynamic_bytes);
  block.object_count = 0;
  block.static_top = kRedZoneBytes;
}

void reset_warps(Block& block) {
  for (int w = 0; w * kWarpLanes < block.threads; ++w) {
    Warp& warp = block.warps[static_cast<std::size_t>(w)];
    const int lanes = std::min(kWarpLanes, block.threads - w * kWarpLanes);
    warp.groups = 0;
    warp.exited = lanes == kWarpLanes ? 0 : ~0U << lanes;
  }
  for (Barrier& barrier : block.barriers) barrier = Barrier{};
}

void start_block(Launch& launch, Block& block, const device::LaunchShape& shape,
                 std::uint64_t number) {
  block.launch = &launch;
  block.alive = block.threads;
  block.load_count = 0;
  block.barriers_fenced = false;
  block.active = true;
  block.dynamic_bytes = shape.shared_bytes;
  reset_arena(block);
  reset_warps(block);
  order_release(&launch.start_token);
  std::uint32_t priority = 0;
  for (int i = 0; i < block.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    const auto index = static_cast<unsigned>(i);
    if (i % kWarpLanes == 0) priority = (launch.random.next() >> 1) | (1U << 30);
    fiber.thread_index = index_of(index, shape.block);
    fiber.block_index = index_of(number, shape.grid);
    fiber.block_extent = to_index(shape.block);
    fiber.grid_extent = to_index(shape.grid);
    fiber.removed = launch.config.removed;
    fiber.block = &block;
    fiber.index = index;
    fiber.priority = priority;
    fiber.site = Site{};
    fiber.copies.clear();
    fiber.products.clear();
    fiber.products_fenced = false;
    prepare_fiber(fiber.context, fiber_entry, std::size_t{index} * 320);
    make_ready(fiber);
  }
}

// Pages of their own: threads of several streams use them one after another.
Fiber* map_fibers(std::size_t count) {
  static_assert(std::is_trivially_destructible_v<Fiber>);
  void* memory = mmap(nullptr, count * sizeof(Fiber), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error("device twin: no memory for the threads of a block");
  auto* fibers = static_cast<Fiber*>(memory);
  for (std::size_t i = 0; i < count; ++i) new (fibers + i) Fiber;
  return fibers;
}

void create_threads(Block& block, int threads) {
  const auto count = static_cast<std::size_t>(threads);
  block.stacks = allocate_stacks(count);
  block.fibers = map_fibers(count);
  block.capacity = threads;
  for (std::size_t i = 0; i < count; ++i) create_fiber(block.fibers[i].context, block.stacks, i);
}

void destroy_threads(Block& block) {
  for (int i = 0; i < block.capacity; ++i) destroy_fiber(block.fibers[i].context);
  if (block.fibers != nullptr)
    munmap(block.fibers, static_cast<std::size_t>(block.capacity) * sizeof(Fiber));
  if (block.stacks != nullptr) free_stacks(block.stacks, static_cast<std::size_t>(block.capacity));
  block.fibers = nullptr;
  block.stacks = nullptr;
  block.capacity = 0;
}

// Blocks that no engine uses: making threads is the dearest part of a short launch, and streams
// come and go. The lock is an atomic that the race detector does not see, so that it orders
// nothing; for the same reason nothing is allocated or freed under it.
class Pool {
 public:
  ~Pool() {
    while (idle_ != nullptr) {
      Block* block = std::exchange(idle_, idle_->next_idle);
      destroy_threads(*block);
      unpoison(block->arena, kArenaBytes);
      munmap(block->arena, kArenaBytes);
      delete block;
    }
  }
  // The idle block with the fewest threads that suffice, else the largest; null when there is none.
  [[nodiscard]] Block* take(int threads) {
    const Lock lock(busy_);
    Block** best = nullptr;
    for (Block** place = &idle_; *place != nullptr; place = &(*place)->next_idle) {
      if (best == nullptr || suits(**place, **best, threads)) best = place;
    }
    return best == nullptr ? nullptr : std::exchange(*best, (*best)->next_idle);
  }
  void give(Block* block) {
    const Lock lock(busy_);
    block->next_idle = std::exchange(idle_, block);
  }

 private:
  struct Lock {
    explicit Lock(std::atomic_flag& flag) : held(flag) {
      while (held.test_and_set(std::memory_order_acquire)) sched_yield();
    }
    ~Lock() { held.clear(std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    std::atomic_flag& held;
  };
  [[nodiscard]] static bool suits(const Block& block, const Block& best, int threads) {
    if (best.capacity < threads) return block.capacity > best.capacity;
    return block.capacity >= threads && block.capacity < best.capacity;
  }
  std::atomic_flag busy_;
  Block* idle_ = nullptr;
};

// What the threads of a failed launch did comes before all that follows it: they never go on.
void end_early(Launch& launch) {
  for (int b = 0; b < launch.block_count; ++b) {
    const Block& block = *launch.blocks[b];
    for (int i = 0; block.active && i < block.threads; ++i)
      order_release_of(block.fibers[i].context, &launch.end_token);
  }
}

Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

Engine::Engine() {
  watch_for_illegal_accesses();
  static_cast<void>(pool());  // outlives every engine
}

Engine::~Engine() {
  for (auto& block : blocks_) pool().give(block.release());
}

void Engine::provide(std::size_t blocks, int threads) {
  while (blocks_.size() < blocks) {
    if (std::unique_ptr<Block> idle{pool().take(threads)}) {
      blocks_.push_back(std::move(idle));
      continue;
    }
    auto block = std::make_unique<Block>();
    void* arena =
        mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
      throw Error("device twin: no memory for the shared memory of one more block");
    block->arena = static_cast<char*>(arena);
    blocks_.push_back(std::move(block));
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    Block& block = *blocks_[b];
    block.active = false;
    if (block.capacity < threads) {
      destroy_threads(block);
      create_threads(block, threads);
    }
    block.threads = threads;
  }
}

std::string Engine::run(const device::LaunchShape& shape, const Config& config,
                        std::uint64_t serial, const Kernel& kernel) {
  const auto threads = static_cast<int>(shape.block.count());
  const std::uint64_t wanted =
      shape.residency == device::Residency::kAllBlocks
          ? shape.grid.count()
          : static_cast<std::uint64_t>(std::max(1, config.resident_blocks));
  const auto resident = static_cast<std::size_t>(std::min(wanted, shape.grid.count()));
  provide(resident, threads);

  auto launch = std::make_unique<Launch>();
  std::vector<Block*> blocks;
  for (std::size_t b = 0; b < resident; ++b) blocks.push_back(blocks_[b].get());
  std::size_t capacity = 64;
  while (capacity < resident * static_cast<std::size_t>(threads) + 1) capacity *= 2;
  std::vector<Fiber*> ring(capacity);
  launch->config = config;
  launch->random.state = mix_seed(config.seed, serial);
  launch->queue.ring = ring.data();
  launch->queue.mask = capacity - 1;
  launch->body = kernel.body;
  launch->argument = kernel.argument;
  launch->blocks = blocks.data();
  launch->block_count = static_cast<int>(resident);
  adopt_thread(launch->main);
  run_blocks(*launch, shape);
  if (launch->failed) end_early(*launch);
  order_acquire(&launch->end_token);
  if (!launch->failed) return {};
  // Its threads stand in the middle of their work. Where nothing but their stacks remembers that,
  // they can begin anew; the address checker's frames and a signal handler's mask cannot.
  if (!kStacksHoldAll || launch->illegal_access) {
    for (std::size_t b = 0; b < resident; ++b) destroy_threads(*blocks_[b]);
  }
  return launch->error.data();
}

void Engine::run_blocks(Launch& launch, const device::LaunchShape& shape) {
  const std::uint64_t total = shape.grid.count();
  std::uint64_t next = 0;
  while (true) {
    bool live = false;
    for (int b = 0; b < launch.block_count; ++b) {
      Block& block = *launch.blocks[b];
      if (block.active && block.alive == 0) block.active = false;
      if (!block.active && next < total) start_block(launch, block, shape, next++);
      live = live || block.active;
    }
    if (!live) return;
    Fiber* fiber = pick(launch);
    if (fiber == nullptr) return record_failure(launch, "deadlock: no thread can run");
    current = fiber;
    switch_fiber(launch.main, fiber->context, Leaving::kForNow);
    current = nullptr;
    if (launch.failed) return;
  }
}

}  // namespace sinew::twin
