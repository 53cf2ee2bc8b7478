#include "model/partial.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace sinew::model {

namespace {

bool is_partial(const Parameter& p, PartialOver over) {
  return over == PartialOver::kTensor ? p.layout.partial : p.layout.copies > 1;
}

template <typename T>
void sum_pieces(comm::Communicator* group, const std::vector<Piece>& pieces, T* gradients,
                kernels::Threads threads) {
  std::int64_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  if (group == nullptr || count == 0) return;
  kernels::synchronize(threads);  // the host packs, and the sum runs over host memory
  std::vector<T> packed(static_cast<std::size_t>(count));
  T* at = packed.data();
  for (const Piece& piece : pieces)
    at = std::copy_n(gradients + piece.gradient_begin, piece.count, at);
  sum_over(group, packed.data(), count);
  const T* from = packed.data();
  for (const Piece& piece : pieces) {
    std::copy_n(from, piece.count, gradients + piece.gradient_begin);
    from += piece.count;
  }
}

}  // namespace

std::vector<Piece> partial_pieces(const FlatLayout& flat, PartialOver over,
                                  std::span<const Piece> owned) {
  std::vector<Piece> pieces;
  for (const Parameter& p : flat.parameters) {
    if (!is_partial(p, over)) continue;
    for (const Piece& whole : owned) {
      const Piece piece = whole.within(p.offset, p.offset + p.slice.local_count());
      if (piece.count > 0) pieces.push_back(piece);
    }
  }
  return pieces;
}

template <typename T>
void sum_partial_gradients(const FlatLayout& flat, std::span<const Piece> owned, Parallel& parallel,
                           T* gradients, kernels::Threads threads) {
  sum_pieces(parallel.tensor(), partial_pieces(flat, PartialOver::kTensor, owned), gradients,
             threads);
  sum_pieces(parallel.copies(), partial_pieces(flat, PartialOver::kCopies, owned), gradients,
             threads);
}

template void sum_partial_gradients<float>(const FlatLayout&, std::span<const Piece>, Parallel&,
                                           float*, kernels::Threads);
template void sum_partial_gradients<bf16>(const FlatLayout&, std::span<const Piece>, Parallel&,
                                          bf16*, kernels::Threads);
template void sum_partial_gradients<double>(const FlatLayout&, std::span<const Piece>, Parallel&,
                                            double*, kernels::Threads);

}  // namespace sinew::model
