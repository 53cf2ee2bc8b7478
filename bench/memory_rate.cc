#include "bench/memory_rate.h"

#include <functional>
#include <vector>

#include "bench/repeat.h"
#include "kernels/reduce.h"

namespace sinew::bench {

namespace {

// Source and target of one rank are more than a third-level cache of 32 MiB holds.
constexpr std::int64_t kCopiedBytes = std::int64_t{24} << 20;
constexpr double kBudget_s = 0.05;

// Ranks whose input, or output, is something: one where the operation has a root there.
int ranks_with(const CollectiveShape& shape, bool at_root_only) {
  return at_root_only ? 1 : shape.world;
}

}  // namespace

double measure_memory_rate(comm::Communicator& communicator) {
  const auto size = static_cast<std::size_t>(kCopiedBytes);
  const std::vector<std::byte> source(size, std::byte{1});
  std::vector<std::byte> target(size, std::byte{2});
  const std::function<void()> copy = [&] {
    kernels::copy_streaming(target.data(), source.data(), kCopiedBytes);
    communicator.barrier();  // a rank that waits for a core counts, too
  };
  const Times times = time_candidates(communicator, {&copy, 1}, {.budget_s = kBudget_s}).front();
  return 2.0 * static_cast<double>(kCopiedBytes) * communicator.world() / times.min_s;
}

std::int64_t least_touched_bytes(const CollectiveShape& any) {
  CollectiveShape shape = any;
  shape.parts = Parts::kEven;  // all parts together are as many elements, however they are cut
  using sched::Collective;
  const bool from_root = shape.op == Collective::kBroadcast || shape.op == Collective::kScatter;
  const bool to_root = shape.op == Collective::kReduce || shape.op == Collective::kGather;
  const std::int64_t elements = shape.input_count() * ranks_with(shape, from_root) +
                                shape.output_count() * ranks_with(shape, to_root);
  return elements * static_cast<std::int64_t>(size_of(shape.dtype));
}

}  // namespace sinew::bench
