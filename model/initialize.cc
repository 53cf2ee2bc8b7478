#include "model/initialize.h"

#include <algorithm>

#include "kernels/element.h"
#include "sched/base/philox.h"

namespace sinew::model {

namespace {
constexpr std::uint32_t kInitPurpose = 0x1217;
constexpr std::int64_t kGrain = 4096;  // about 0.1 ms of logarithms and cosines

// target[i] = value of logical element begin + i.
template <typename E>
void fill(const Parameter& p, const Philox& random, std::int64_t begin, std::int64_t count,
          E* target) {
  const auto stream = static_cast<std::uint64_t>(p.index);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(begin + i);
    const double value = p.init_std > 0 ? p.init_std * random.normal(index, stream) : p.init_value;
    target[i] = kernels::narrow<E>(static_cast<kernels::Wide<E>>(value));
  }
}

// Elements of `pieces` in the order they have in a slice, whatever runs they fall into; at(piece):
// where a piece's first one lies.
template <typename At>
void fill_pieces(std::uint64_t seed, const std::vector<Parameter>& parameters,
                 const std::vector<Piece>& pieces, kernels::Threads threads, At&& at) {
  const Philox random(seed, kInitPurpose);
  for (const Parameter& p : parameters) {
    const std::int64_t length = p.slice.run(0).count;
    for (const Piece& whole : pieces) {
      const Piece piece = whole.within(p.offset, p.offset + p.slice.local_count());
      if (piece.count <= 0) continue;
      auto* target = at(piece);
      const std::int64_t first = piece.flat_begin - p.offset;  // in the slice
      kernels::parallel_for(threads, piece.count, kGrain,
                            [&](std::int64_t begin, std::int64_t end) {
                              while (begin < end) {
                                const Slice::Run run = p.slice.run((first + begin) / length);
                                const std::int64_t within = first + begin - run.local;
                                const std::int64_t count = std::min(end - begin, length - within);
                                fill(p, random, run.logical + within, count, target + begin);
                                begin += count;
                              }
                            });
    }
  }
}

}  // namespace

template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage, kernels::Threads threads) {
  fill_pieces(seed, stage.parameters(), stage.units().held(), threads,
              [&](const Piece& piece) { return stage.weights() + piece.weight_begin; });
}

template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage, Optimizer<T>& optimizer,
                        kernels::Threads threads) {
  initialize_weights(seed, stage, threads);
  if (Optimizer<T>::kNarrow && optimizer.updates_wide()) {
    fill_pieces(seed, stage.parameters(), optimizer.owned(), threads,
                [&](const Piece& piece) { return optimizer.masters(piece); });
  }
}

#define SINEW_INSTANTIATE(T)                                                       \
  template void initialize_weights<T>(std::uint64_t, Stage<T>&, kernels::Threads); \
  template void initialize_weights<T>(std::uint64_t, Stage<T>&, Optimizer<T>&, kernels::Threads);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
