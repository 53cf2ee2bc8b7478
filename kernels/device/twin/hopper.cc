// Layouts as the PTX manual draws them ("Asynchronous warpgroup level matrix shared memory layout",
// both majors with the 128-byte swizzle; "Register fragments for wgmma.mma_async.m64nNk16"):
//   - element (row, k) of a K-major operand lies at start + row * 128 + k * 2, of an MN-major one
//   at
//     start + row / 64 * leading + k / 8 * stride + k % 8 * 128 + row % 64 * 2; bits 4 to 6 of the
//     address are exchanged by bits 7 to 9
//   - of a product's 64 rows warp w of the group has 16w to 16w + 15, as mma.m16n8k16 has its 16;
//     values 4j to 4j + 3 of a lane belong to columns 8j to 8j + 7
#include "kernels/device/twin/hopper.h"

#include "kernels/device/tensor_map.h"
#include "kernels/device/twin/box_map.h"
#include "kernels/device/twin/state.h"
#include "kernels/device/twin/tensor_sum.h"

namespace sinew::twin {

namespace {

// Bits of a barrier's word, low to high: phase, arrivals of a phase, arrivals pending, bytes
// pending (with a bias, since copies may end before they are expected), and a mark by which a word
// that was never initialised is told.
struct BarrierState {
  static constexpr std::uint64_t kMark = 0xb7;
  static constexpr std::int64_t kBias = 1 << 24;
  std::uint64_t phase;
  std::uint64_t arrivals;
  std::uint64_t pending;
  std::int64_t bytes;

  static BarrierState read(const std::uint64_t* barrier) {
    const std::uint64_t word = *barrier;
    static_cast<void>(shared_address(barrier));
    if (word >> 56 != kMark)
      fail("mbarrier %p is not initialised", static_cast<const void*>(barrier));
    return {word & 1, word >> 1 & 0x7fff, word >> 16 & 0x7fff,
            static_cast<std::int64_t>(word >> 31 & 0x1ffffff) - kBias};
  }
  void write(std::uint64_t* barrier) {
    if (pending == 0 && bytes == 0) {
      phase ^= 1;
      pending = arrivals;
      progress(launch_of(self()));
    }
    *barrier = phase | arrivals << 1 | pending << 16 |
               static_cast<std::uint64_t>(bytes + kBias) << 31 | kMark << 56;
  }
};

char* token_of(std::uint64_t* barrier) { return reinterpret_cast<char*>(barrier); }

void perform(const BoxLoad& load) {
  const BoxMap& map = load.map;
  constexpr int kRowBytes = device::kBoxColumns * 2;
  const Block& block = *self().block;
  const std::uint32_t start = shared_address(load.target);
  for (std::uint32_t r = 0; r < map.box_rows; ++r) {
    for (int c = 0; c < device::kBoxColumns; ++c) {
      const std::int64_t row = load.row + static_cast<std::int64_t>(r);
      const std::int64_t column = std::int64_t{load.column} + c;
      const bool inside = row >= 0 && column >= 0 && row < static_cast<std::int64_t>(map.rows) &&
                          column < static_cast<std::int64_t>(map.columns);
      const std::uint32_t plain = start + r * kRowBytes + static_cast<std::uint32_t>(c) * 2;
      const std::uint32_t address = plain ^ ((plain >> 7 & 7U) << 4);
      std::uint16_t bits = 0;
      if (inside)
        bits = map.data[static_cast<std::uint64_t>(row) * map.row_stride +
                        static_cast<std::uint64_t>(column)];
      *reinterpret_cast<std::uint16_t*>(block.arena + address) = bits;
    }
  }
  BarrierState state = BarrierState::read(load.barrier);
  state.bytes -= static_cast<std::int64_t>(map.box_rows) * kRowBytes;
  order_release(token_of(load.barrier));
  state.write(load.barrier);
}

// Copies that end now that somebody asks for their barrier: all of them, or each by chance.
void perform_loads(Block& block, const std::uint64_t* barrier) {
  Launch& launch = *block.launch;
  int kept = 0;
  for (int i = 0; i < block.load_count; ++i) {
    const BoxLoad load = block.loads[static_cast<std::size_t>(i)];
    const bool now =
        load.barrier == barrier && (launch.config.async != Async::kRandom || launch.random.coin());
    if (now) {
      perform(load);
    } else {
      block.loads[static_cast<std::size_t>(kept++)] = load;
    }
  }
  block.load_count = kept;
}

float operand(const Block& block, const ProductOperand& from, int row, int k) {
  const auto field = [&](int low) {
    return static_cast<std::uint32_t>(from.descriptor >> low & 0x3fff) << 4;
  };
  const auto r = static_cast<std::uint32_t>(row);
  const auto depth = static_cast<std::uint32_t>(k);
  const std::uint32_t inside =
      from.outer_major ? r / 64 * field(16) + depth / 8 * field(32) + depth % 8 * 128 + r % 64 * 2
                       : r * 128 + depth * 2;
  const std::uint32_t plain = field(0) + inside;
  const std::uint32_t address = plain ^ ((plain >> 7 & 7U) << 4);
  const std::uint32_t bits = *reinterpret_cast<const std::uint16_t*>(block.arena + address);
  return __builtin_bit_cast(float, bits << 16);
}

void perform(const Product& product) {
  constexpr int kDepth = 16;
  const Fiber& fiber = self();
  const Block& block = *fiber.block;
  const int lane = static_cast<int>(fiber.index % kWarpLanes);
  const int warp = static_cast<int>(fiber.index / kWarpLanes % 4);
  float a[kDepth][2];
  for (int k = 0; k < kDepth; ++k) {
    for (int h = 0; h < 2; ++h)
      a[k][h] = operand(block, product.a, warp * 16 + lane / 4 + h * 8, k);
  }
  for (int j = 0; j < product.columns / 8; ++j) {
    for (int i = 0; i < 2; ++i) {
      TensorSums<2> sums;
      for (int k = 0; k < kDepth; ++k)
        sums.add(operand(block, product.b, j * 8 + lane % 4 * 2 + i, k), a[k]);
      for (int h = 0; h < 2; ++h) {
        float& d = product.d[4 * j + 2 * h + i];
        d = sums.on(h, product.accumulate ? d : 0);
      }
    }
  }
}

// An operand of so many rows (columns of B), each of 16 summands.
void check_operand(const ProductOperand& operand, int rows) {
  constexpr std::uint64_t kSwizzle128 = 1;
  constexpr std::uint64_t kFields = 0xc000'3fff'3fff'3fffULL;
  const std::uint64_t descriptor = operand.descriptor;
  if (descriptor >> 62 != kSwizzle128) fail("wgmma: the twin knows the 128-byte swizzle only");
  if ((descriptor & ~kFields) != 0) fail("wgmma: bits of the descriptor that must be 0 are not");
  if ((descriptor >> 32 & 0x3fff) << 4 != 1024)
    fail("wgmma: groups of eight rows must lie 1024 bytes apart");
  // The descriptor's base offset is 0: the pattern of the swizzle begins where the operand does.
  const std::uint64_t start = (descriptor & 0x3fff) << 4;
  if ((start >> 7 & 7) != 0) fail("wgmma: an operand begins inside a group of eight rows");
  if (operand.outer_major && start % 1024 != 0)
    fail("wgmma: an operand whose summed dimension is not contiguous begins at a multiple of 1024");
  if (!operand.outer_major && start % 128 + 32 > 128)
    fail("wgmma: 16 summands do not lie within a row of 128 bytes");
  const std::uint64_t panels = static_cast<std::uint64_t>(rows + 63) / 64;
  const std::uint64_t size = operand.outer_major
                                 ? (panels - 1) * ((descriptor >> 16 & 0x3fff) << 4) + 2048
                                 : static_cast<std::uint64_t>(rows) * 128 - start % 128;
  if (start < kDynamicOffset || start + size > kDynamicOffset + self().block->dynamic_bytes)
    fail("wgmma: an operand lies outside the block's dynamic shared memory");
}

}  // namespace

void mbarrier_init(std::uint64_t* barrier, unsigned arrivals) {
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0) fail("mbarrier: misaligned");
  static_cast<void>(shared_address(barrier));
  self().block->barriers_fenced = false;
  *barrier = std::uint64_t{arrivals} << 1 | std::uint64_t{arrivals} << 16 |
             static_cast<std::uint64_t>(BarrierState::kBias) << 31 | BarrierState::kMark << 56;
}

void mbarrier_fence_init() { self().block->barriers_fenced = true; }

void mbarrier_arrive(std::uint64_t* barrier, unsigned expected_bytes, const Site& site) {
  self().site = site;
  BarrierState state = BarrierState::read(barrier);
  if (state.pending == 0) fail("mbarrier: more arrivals than a phase has");
  state.bytes += expected_bytes;
  --state.pending;
  order_release(token_of(barrier));
  state.write(barrier);
}

bool mbarrier_try(std::uint64_t* barrier, unsigned parity, const Site& site) {
  self().site = site;
  if ((BarrierState::read(barrier).phase & 1) == parity) perform_loads(*self().block, barrier);
  if ((BarrierState::read(barrier).phase & 1) == parity) return false;
  order_acquire(token_of(barrier));
  return true;
}

void box_load(void* target, const void* map, int column, int row, std::uint64_t* barrier,
              const Site& site) {
  Fiber& fiber = self();
  fiber.site = site;
  BoxLoad load;
  load.map = *static_cast<const BoxMap*>(map);
  load.target = target;
  load.barrier = barrier;
  load.column = column;
  load.row = row;
  if (load.map.mark != BoxMap::kMark) fail("box copy: the map was not made by make_tensor_map");
  if (shared_address(target) % 1024 != 0) fail("box copy: target must be a multiple of 1024 bytes");
  Block& block = *fiber.block;
  if (!block.barriers_fenced) fail("box copy: barriers were initialised without a fence");
  const Launch& launch = launch_of(fiber);
  if (launch.config.async == Async::kEager) return perform(load);
  if (block.load_count == static_cast<int>(block.loads.size()))
    fail("more than %zu box copies in flight", block.loads.size());
  block.loads[static_cast<std::size_t>(block.load_count++)] = load;
}

void product_issue(const Product& product, const Site& site) {
  Fiber& fiber = self();
  Launch& launch = launch_of(fiber);
  fiber.site = site;
  if (!fiber.products_fenced) fail("wgmma: no wgmma.fence since the sums were the thread's");
  check_operand(product.a, 64);
  check_operand(product.b, product.columns);
  // Products of a thread happen in order: at once only when none waits.
  const bool now = launch.config.async == Async::kEager ||
                   (launch.config.async == Async::kRandom && launch.random.coin());
  if (now && fiber.products.empty()) return perform(product);
  if (fiber.products.full()) fail("more than 64 wgmma in flight in one thread");
  fiber.products.push(product);
}

void product_fence() { self().products_fenced = true; }

void product_commit() {
  if (!self().products.commit()) fail("more than 16 wgmma groups in flight in one thread");
}

void product_wait(int groups) {
  while (const Product* product = self().products.next(groups)) perform(*product);
  if (groups == 0) self().products_fenced = false;
}

}  // namespace sinew::twin
