#include "model/partial.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

bool is_partial(const Parameter& p, PartialOver over) {
  return over == PartialOver::kTensor ? p.layout.partial : p.layout.copies > 1;
}

std::int64_t count_of(const std::vector<Piece>& pieces) {
  std::int64_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  return count;
}

template <typename T>
void sum_pieces(comm::Communicator* group, const std::vector<Piece>& pieces, T* gradients) {
  const std::int64_t count = count_of(pieces);
  if (group == nullptr || count == 0) return;
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

void queue_pieces(comm::Communicator* group, const std::vector<Piece>& pieces, float* gradients,
                  kernels::Threads device, std::span<float> packed) {
  const std::int64_t count = count_of(pieces);
  if (group == nullptr || count == 0) return;
  CHECK_LE(count, static_cast<std::int64_t>(packed.size()));
  float* at = packed.data();
  for (const Piece& piece : pieces) {
    kernels::copy<float>(at, gradients + piece.gradient_begin, piece.count, device);
    at += piece.count;
  }
  sum_over(group, packed.data(), count);
  at = packed.data();
  for (const Piece& piece : pieces) {
    kernels::copy<float>(gradients + piece.gradient_begin, at, piece.count, device);
    at += piece.count;
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
                           T* gradients) {
  sum_pieces(parallel.tensor(), partial_pieces(flat, PartialOver::kTensor, owned), gradients);
  sum_pieces(parallel.copies(), partial_pieces(flat, PartialOver::kCopies, owned), gradients);
}

void queue_partial_sums(const FlatLayout& flat, std::span<const Piece> owned, Parallel& parallel,
                        float* gradients, kernels::Threads device, std::span<float> packed) {
  queue_pieces(parallel.tensor(), partial_pieces(flat, PartialOver::kTensor, owned), gradients,
               device, packed);
  queue_pieces(parallel.copies(), partial_pieces(flat, PartialOver::kCopies, owned), gradients,
               device, packed);
}

std::int64_t partial_most(const FlatLayout& flat, std::span<const Piece> owned) {
  return std::max(count_of(partial_pieces(flat, PartialOver::kTensor, owned)),
                  count_of(partial_pieces(flat, PartialOver::kCopies, owned)));
}

template void sum_partial_gradients<float>(const FlatLayout&, std::span<const Piece>, Parallel&,
                                           float*);
template void sum_partial_gradients<bf16>(const FlatLayout&, std::span<const Piece>, Parallel&,
                                          bf16*);
template void sum_partial_gradients<double>(const FlatLayout&, std::span<const Piece>, Parallel&,
                                            double*);

}  // namespace sinew::model
