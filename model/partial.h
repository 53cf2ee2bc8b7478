// Gradients that tensor ranks hold in parts: of norms under sequence parallelism (each rank sees
// its own rows), of key/value matrices that several ranks hold a copy of (each sees its own
// queries).
//
// Threads: one rank, one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/layout.h"
#include "model/parallel.h"
#include "model/units.h"

namespace sinew::model {

enum class PartialOver : std::uint8_t {
  kTensor,  // summed over the tensor ranks
  kCopies,  // over the ranks with the same key/value heads
};

// The partial gradients within `owned`, by increasing offsets: the same counts on every rank of the
// group.
[[nodiscard]] std::vector<Piece> partial_pieces(const FlatLayout& flat, PartialOver over,
                                                std::span<const Piece> owned);

// Completes them in place, in what `gradients` holds of the pieces (units.h): one all-reduce over
// each kind of group, or none where there is nothing to sum.
template <typename T>
void sum_partial_gradients(const FlatLayout& flat, std::span<const Piece> owned, Parallel& parallel,
                           T* gradients);

// The same on a device, in its order; `packed`, in its memory, has partial_most() elements.
void queue_partial_sums(const FlatLayout& flat, std::span<const Piece> owned, Parallel& parallel,
                        float* gradients, kernels::Threads device, std::span<float> packed);
[[nodiscard]] std::int64_t partial_most(const FlatLayout& flat, std::span<const Piece> owned);

}  // namespace sinew::model
