#include "model/initialize.h"

#include <algorithm>

#include "sched/base/philox.h"

namespace sinew::model {

namespace {
constexpr std::uint32_t kInitPurpose = 0x1217;
constexpr std::int64_t kGrain = 4096;  // about 0.1 ms of logarithms and cosines

// target[i] = value of logical element begin + i.
template <typename T>
void fill(const Parameter& p, const Philox& random, std::int64_t begin, std::int64_t count,
          T* target) {
  const auto stream = static_cast<std::uint64_t>(p.index);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(begin + i);
    target[i] =
        static_cast<T>(p.init_std > 0 ? p.init_std * random.normal(index, stream) : p.init_value);
  }
}

}  // namespace

template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage, kernels::Threads threads) {
  const Philox random(seed, kInitPurpose);
  for (const Parameter& p : stage.parameters()) {
    const std::int64_t length = p.slice.run(0).count;
    for (const Piece& held : stage.units().held()) {
      const Piece piece = held.within(p.offset, p.offset + p.slice.local_count());
      if (piece.count <= 0) continue;
      T* weights = stage.weights() + piece.weight_begin;
      const std::int64_t first = piece.flat_begin - p.offset;  // in the slice
      // Elements in the order they have in the slice, whatever runs they fall into.
      kernels::parallel_for(threads, piece.count, kGrain,
                            [&](std::int64_t begin, std::int64_t end) {
                              while (begin < end) {
                                const Slice::Run run = p.slice.run((first + begin) / length);
                                const std::int64_t within = first + begin - run.local;
                                const std::int64_t count = std::min(end - begin, length - within);
                                fill(p, random, run.logical + within, count, weights + begin);
                                begin += count;
                              }
                            });
    }
  }
}

template void initialize_weights<float>(std::uint64_t, Stage<float>&, kernels::Threads);
template void initialize_weights<double>(std::uint64_t, Stage<double>&, kernels::Threads);

}  // namespace sinew::model
