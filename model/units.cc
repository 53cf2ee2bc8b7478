#include "model/units.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/accelerator.h"
#include "kernels/elementwise.h"
#include "model/parallel.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

constexpr std::size_t kBuffers = 2;  // one in use and one on its way

// The two ends of a model use a table and a small unit at once.
static_assert(kBuffers >= 2);

std::int64_t largest_unit(const FlatLayout& flat) {
  std::int64_t most = 0;
  for (const Unit& unit : flat.units) most = std::max(most, unit.count);
  return most;
}

// The values of an array in the narrower type, from its beginning on.
template <typename T>
void narrow_in_place(kernels::Wide<T>* data, std::int64_t count) {
  constexpr std::int64_t kPiece = 1024;
  T piece[kPiece];
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t end = std::min(count, begin + kPiece);
    for (std::int64_t i = begin; i < end; ++i) piece[i - begin] = kernels::narrow<T>(data[i]);
    std::memcpy(reinterpret_cast<std::byte*>(data) + begin * static_cast<std::int64_t>(sizeof(T)),
                piece, static_cast<std::size_t>(end - begin) * sizeof(T));
  }
}

// target[i] += source[i], rounded once.
template <typename T>
void add_narrow(T* target, const kernels::Wide<T>* source, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    target[i] = kernels::narrow<T>(kernels::widen(target[i]) + source[i]);
}

void wait_if_pending(comm::Request& request) {
  if (request.pending()) request.wait();
}

}  // namespace

Piece Piece::within(std::int64_t begin, std::int64_t end) const {
  const std::int64_t first = std::max(begin, flat_begin);
  const std::int64_t last = std::min(end, flat_begin + count);
  const std::int64_t skipped = first - flat_begin;
  return {first, last - first, weight_begin + skipped, gradient_begin + skipped,
          state_begin + skipped};
}

template <typename T>
Units<T>::Units(FlatLayout flat, const Sharding& sharding, kernels::Threads threads, Arena& weights,
                Arena& gradients, Arena& working)
    : flat_(std::move(flat)), sharding_(sharding), threads_(threads) {
  const bool cuts_state = sharding.zero != sched::Zero::kNone;
  const std::int64_t pieces = cuts_state ? sharding.ranks() : 1;
  bool has_first_copy = false;
  bool has_head = false;
  for (const Unit& unit : flat_.units) {
    CHECK_EQ(unit.count % pieces, 0);
    const std::int64_t share = unit.count / pieces;
    const std::int64_t at = unit.begin + (cuts_state ? sharding.rank() * share : 0);
    const std::int64_t cut_at = unit.begin / pieces;
    owned_.push_back({.flat_begin = at,
                      .count = share,
                      .weight_begin = sharding.cuts_weights() ? cut_at : at,
                      .gradient_begin = sharding.cuts_gradients() ? cut_at : at,
                      .state_begin = cut_at});
    held_.push_back(sharding.cuts_weights()
                        ? owned_.back()
                        : Piece{unit.begin, unit.count, unit.begin, unit.begin, unit.begin});
  }
  for (const Parameter& p : flat_.parameters) {
    has_first_copy = has_first_copy || (p.layout.tied && !p.second_copy);
    has_head = has_head || p.final_norm;
  }
  weights_ = weights.allocate<T>(sharding.cuts_weights() ? flat_.count / pieces : flat_.count);
  const std::int64_t kept = sharding.cuts_gradients() ? flat_.count / pieces : flat_.count;
  if (sharding.narrow_gradients) {
    narrow_ = gradients.allocate<T>(kept);
  } else {
    gradients_ = gradients.allocate<W>(kept);
  }
  const std::int64_t largest = largest_unit(flat_);
  if (sharding.cuts_weights()) allocate_gathered(working);
  for (std::size_t i = 0; i < kBuffers && sharding.uses_working(); ++i)
    working_.push_back({.data = working.allocate<W>(largest)});
  if (has_first_copy && has_head) {
    const Unit& table = flat_.units.front();
    const std::int64_t count = sharding.cuts_gradients() ? table.count / pieces : table.count;
    if (sharding.narrow_gradients) {
      narrow_head_share_ = working.allocate<T>(count);
    } else {
      head_share_ = working.allocate<W>(count);
    }
  }
  started_.resize(flat_.units.size());
  bad_.resize(flat_.parameters.size());
}

// ---- weights

template <typename T>
void Units<T>::allocate_gathered(Arena& working) {
  std::int64_t largest = 0;  // of those without a buffer of their own
  for (std::size_t i = 0; i < flat_.units.size(); ++i) {
    const Unit& unit = flat_.units[i];
    if (sharding_.keeps_gathered && unit.layer >= 0) {
      gathered_.push_back({.data = working.allocate<T>(unit.count), .only = i});
    } else {
      largest = std::max(largest, unit.count);
    }
  }
  for (std::size_t i = 0; i < kBuffers && largest > 0; ++i)
    gathered_.push_back({.data = working.allocate<T>(largest)});
}

template <typename T>
typename Units<T>::template Buffer<T>* Units<T>::find_free(std::size_t unit) {
  const bool own = sharding_.keeps_gathered && flat_.units[unit].layer >= 0;
  const auto found = std::find_if(gathered_.begin(), gathered_.end(), [&](const auto& buffer) {
    return buffer.unit == kNone && buffer.only == (own ? unit : kNone);
  });
  return found == gathered_.end() ? nullptr : &*found;
}

template <typename T>
typename Units<T>::template Buffer<T>* Units<T>::find_gathered(std::size_t unit) {
  const auto found = std::find_if(gathered_.begin(), gathered_.end(),
                                  [&](const auto& buffer) { return buffer.unit == unit; });
  return found == gathered_.end() ? nullptr : &*found;
}

template <typename T>
void Units<T>::gather(Buffer<T>& buffer, std::size_t unit) {
  CHECK(!buffer.request.pending());
  buffer.unit = unit;
  buffer.request = sharding_.data->start_all_gather(weights_ + owned_[unit].weight_begin,
                                                    buffer.data, owned_[unit].count, dtype_of_v<T>);
}

template <typename T>
const T* Units<T>::use(std::size_t unit) {
  if (!sharding_.cuts_weights()) return weights_ + flat_.units[unit].begin;
  Buffer<T>* buffer = find_gathered(unit);
  if (buffer == nullptr) {
    buffer = find_free(unit);
    CHECK(buffer != nullptr);
    gather(*buffer, unit);
  }
  CHECK(!buffer->busy);
  buffer->busy = true;
  wait_if_pending(buffer->request);
  return buffer->data;
}

template <typename T>
void Units<T>::prefetch(std::size_t unit) {
  if (!sharding_.cuts_weights() || find_gathered(unit) != nullptr) return;
  Buffer<T>* buffer = find_free(unit);
  if (buffer != nullptr) gather(*buffer, unit);
}

// What no backward will use is freed.
template <typename T>
void Units<T>::release(std::size_t unit) {
  if (!sharding_.cuts_weights()) return;
  Buffer<T>* buffer = find_gathered(unit);
  CHECK(buffer != nullptr && buffer->busy);
  buffer->busy = false;
  if (buffer->kept > 0 && --buffer->kept > 0) return;
  buffer->unit = kNone;
}

template <typename T>
void Units<T>::keep(std::size_t unit) {
  if (!sharding_.cuts_weights()) return;
  if (!sharding_.keeps_gathered) return release(unit);
  Buffer<T>* buffer = find_gathered(unit);
  CHECK(buffer != nullptr && buffer->busy);
  CHECK_EQ(buffer->only, unit);
  buffer->busy = false;
  ++buffer->kept;
}

template <typename T>
void Units<T>::share_weights() {
  if (sharding_.data == nullptr || sharding_.zero == sched::Zero::kNone || sharding_.cuts_weights())
    return;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    sharding_.data->all_gather(weights_ + owned_[i].weight_begin, weights_ + flat_.units[i].begin,
                               owned_[i].count, dtype_of_v<T>);
  }
}

// ---- gradients

template <typename T>
void Units<T>::zero_gradients() {
  CHECK(reductions_.empty() && scattering_.empty());
  const std::int64_t pieces = sharding_.cuts_gradients() ? sharding_.ranks() : 1;
  const std::int64_t table = flat_.units.front().count / pieces;
  with_gradients(
      [&](auto* gradients) { kernels::clear(gradients, flat_.count / pieces, threads_); });
  if (head_share_ != nullptr) kernels::clear<W>(head_share_, table, threads_);
  if (narrow_head_share_ != nullptr) kernels::clear<T>(narrow_head_share_, table, threads_);
  started_.assign(started_.size(), false);
  bad_.assign(bad_.size(), false);
  if (threads_.accelerator != nullptr)
    threads_.accelerator->clear(not_finite_.data(), not_finite_.size_bytes());
}

template <typename T>
typename Units<T>::W* Units<T>::gradient(std::size_t unit) {
  if (!sharding_.uses_working()) return gradients_ + flat_.units[unit].begin;
  return gradient_buffer(unit, false).data;
}

template <typename T>
typename Units<T>::W* Units<T>::head_gradient(std::size_t unit) {
  if (!has_head_share()) return gradient(unit);
  return sharding_.uses_working() ? gradient_buffer(unit, true).data : head_share_;
}

// What each microbatch adds, or the step's sum.
template <typename T>
void Units<T>::double_faulty(std::size_t unit, bool last) {
  const Unit& u = flat_.units[unit];
  for (const Parameter& p : flat_.parameters) {
    if (p.name != sharding_.fault || p.second_copy || p.offset < u.begin ||
        p.offset >= u.begin + u.count)
      continue;
    if (!sharding_.uses_working() && !last) return;
    W* gradient = this->gradient(unit) + (p.offset - u.begin);
    kernels::add<W>(gradient, gradient, p.slice.local_count(), threads_);
  }
}

template <typename T>
void Units<T>::gradient_done(std::size_t unit, bool last) {
  if (!sharding_.fault.empty()) double_faulty(unit, last);
  if (sharding_.uses_working()) deliver(gradient_buffer(unit, false));
  if (!sharding_.cuts_gradients() && last && !is_tied(unit)) start_reduction(unit);
}

template <typename T>
void Units<T>::head_gradient_done(std::size_t unit) {
  if (sharding_.uses_working()) deliver(gradient_buffer(unit, has_head_share()));
}

template <typename T>
void Units<T>::deliver(Buffer<W>& buffer) {
  if (sharding_.cuts_gradients()) {
    scatter(buffer);
  } else {
    absorb(buffer);
  }
}

// Narrow gradients that are not cut.
template <typename T>
void Units<T>::absorb(Buffer<W>& buffer) {
  const Unit& unit = flat_.units[buffer.unit];
  add_narrow<T>(buffer.head ? narrow_head_share_ : narrow_ + unit.begin, buffer.data, unit.count);
  buffer.unit = kNone;
}

// The one that this microbatch adds to, from zeros.
template <typename T>
typename Units<T>::template Buffer<kernels::Wide<T>>& Units<T>::gradient_buffer(std::size_t unit,
                                                                                bool head) {
  for (Buffer<W>& buffer : working_) {
    if (buffer.unit == unit && buffer.head == head && !buffer.busy) return buffer;
  }
  const auto is_free = [](const Buffer<W>& buffer) { return buffer.unit == kNone; };
  auto free = std::find_if(working_.begin(), working_.end(), is_free);
  if (free == working_.end()) {
    collect_oldest();
    free = std::find_if(working_.begin(), working_.end(), is_free);
  }
  free->unit = unit;
  free->head = head;
  kernels::clear<W>(free->data, flat_.units[unit].count, threads_);
  return *free;
}

template <typename T>
void Units<T>::scatter(Buffer<W>& buffer) {
  note_bad(buffer.unit, buffer.data);
  const std::int64_t share = owned_[buffer.unit].count;
  buffer.busy = true;
  const auto start = [&](auto* data) {
    using E = std::remove_pointer_t<decltype(data)>;
    return sharding_.data->start_reduce_scatter(data, data + sharding_.rank() * share, share,
                                                dtype_of_v<E>, ReduceOp::kSum,
                                                {.algorithm = "direct"});
  };
  if (sharding_.narrow_gradients) {
    narrow_in_place<T>(buffer.data, flat_.units[buffer.unit].count);
    buffer.request = start(reinterpret_cast<T*>(buffer.data));
  } else {
    buffer.request = start(buffer.data);
  }
  scattering_.push_back(static_cast<std::size_t>(&buffer - working_.data()));
}

// Microbatches are added in the order in which they were scattered.
template <typename T>
void Units<T>::collect_oldest() {
  CHECK(!scattering_.empty());
  Buffer<W>& buffer = working_[scattering_.front()];
  scattering_.pop_front();
  wait_if_pending(buffer.request);
  const Piece& piece = owned_[buffer.unit];
  const std::int64_t at = sharding_.rank() * piece.count;
  if (sharding_.narrow_gradients) {
    T* target = buffer.head ? narrow_head_share_ : narrow_ + piece.gradient_begin;
    kernels::add<T>(target, reinterpret_cast<const T*>(buffer.data) + at, piece.count, threads_);
  } else {
    W* target = buffer.head ? head_share_ : gradients_ + piece.gradient_begin;
    kernels::add<W>(target, buffer.data + at, piece.count, threads_);
  }
  buffer.unit = kNone;
  buffer.busy = false;
}

template <typename T>
void Units<T>::start_reduction(std::size_t unit) {
  started_[unit] = true;
  const Unit& u = flat_.units[unit];
  with_gradients([&](auto* gradients) {
    using E = std::remove_pointer_t<decltype(gradients)>;
    auto* data = gradients + u.begin;
    note_bad(unit, static_cast<const E*>(data));
    if (sharding_.data == nullptr) return;
    if (sharding_.zero == sched::Zero::kNone) {
      reductions_.push_back(sharding_.data->start_all_reduce(
          data, data, u.count, dtype_of_v<E>, ReduceOp::kSum,
          {.algorithm = sum_algorithm(u.count * static_cast<std::int64_t>(sizeof(E)))}));
    } else {
      reductions_.push_back(sharding_.data->start_reduce_scatter(
          data, gradients + owned_[unit].gradient_begin, owned_[unit].count, dtype_of_v<E>,
          ReduceOp::kSum, {.algorithm = "direct"}));
    }
  });
}

template <typename T>
void Units<T>::finish(comm::Communicator* tie) {
  while (!scattering_.empty()) collect_oldest();
  for (const Buffer<T>& buffer : gathered_) CHECK_EQ(buffer.kept, 0);
  const bool cuts = sharding_.cuts_gradients();
  for (std::size_t i = 0; i < flat_.units.size(); ++i) {
    if (!is_tied(i)) continue;
    const std::int64_t begin = cuts ? owned_[i].gradient_begin : flat_.units[i].begin;
    const std::int64_t count =
        cuts ? owned_[i].count : flat_.parameters[flat_.units[i].first].slice.local_count();
    if (head_share_ != nullptr) kernels::add<W>(gradients_ + begin, head_share_, count, threads_);
    if (narrow_head_share_ != nullptr)
      kernels::add<T>(narrow_ + begin, narrow_head_share_, count, threads_);
    with_gradients([&](auto* gradients) { sum_over(tie, gradients + begin, count); });
  }
  for (std::size_t i = 0; i < flat_.units.size() && !cuts; ++i) {
    if (!started_[i]) start_reduction(i);
  }
  wait_for_reductions();
  sum_over_groups();
}

template <typename T>
void Units<T>::wait_for_reductions() {
  for (comm::Request& request : reductions_) wait_if_pending(request);
  reductions_.clear();
}

// All at once: one unit's latency hides behind another's.
template <typename T>
void Units<T>::sum_over_groups() {
  if (sharding_.groups == nullptr) return;
  with_gradients([&](auto* gradients) {
    using E = std::remove_pointer_t<decltype(gradients)>;
    for (const Piece& piece : owned_) {
      auto* data = gradients + piece.gradient_begin;
      reductions_.push_back(sharding_.groups->start_all_reduce(
          data, data, piece.count, dtype_of_v<E>, ReduceOp::kSum,
          {.algorithm = sum_algorithm(piece.count * static_cast<std::int64_t>(sizeof(E)))}));
    }
  });
  wait_for_reductions();
}

template <typename T>
void Units<T>::progress() {
  for (comm::Request& request : reductions_) {
    if (request.pending() && !request.test()) return;
  }
  for (const std::size_t i : scattering_) {
    if (working_[i].request.pending() && !working_[i].request.test()) return;
  }
  for (Buffer<T>& buffer : gathered_) {
    if (buffer.request.pending()) static_cast<void>(buffer.request.test());
  }
}

template <typename T>
template <typename E>
void Units<T>::note_bad(std::size_t unit, const E* gradients) {
  const Unit& u = flat_.units[unit];
  if constexpr (std::is_same_v<E, float>) {
    if (threads_.accelerator != nullptr) return note_bad_on_device(u, gradients);
  }
  if (std::isfinite(kernels::sum_of_squares(gradients, u.count, threads_))) return;
  for (std::size_t i = u.first; i < flat_.parameters.size(); ++i) {
    const Parameter& p = flat_.parameters[i];
    if (p.offset >= u.begin + u.count) return;
    const double sum =
        kernels::sum_of_squares(gradients + (p.offset - u.begin), p.slice.local_count(), threads_);
    if (!std::isfinite(sum)) bad_[i] = true;
  }
}

// Queued, like the reduction that follows: the host waits for neither.
template <typename T>
void Units<T>::note_bad_on_device(const Unit& unit, const float* gradients) {
  CHECK_EQ(not_finite_.size(), flat_.parameters.size());
  kernels::Spans spans;
  for (std::size_t i = unit.first; i < flat_.parameters.size(); ++i) {
    const Parameter& p = flat_.parameters[i];
    if (p.offset >= unit.begin + unit.count) break;
    CHECK_LT(spans.count, kernels::Spans::kMost);
    spans.end[static_cast<std::size_t>(spans.count++)] =
        p.offset - unit.begin + p.slice.local_count();
  }
  threads_.accelerator->note_not_finite(gradients, spans, &not_finite_[unit.first]);
}

template <typename T>
std::vector<bool> Units<T>::bad() const {
  if (threads_.accelerator == nullptr) return bad_;
  std::vector<bool> bad;
  for (const std::uint64_t flag : not_finite_) bad.push_back(flag != 0);
  return bad;
}

template <typename T>
bool Units<T>::is_tied(std::size_t unit) const {
  return flat_.parameters[flat_.units[unit].first].layout.tied;
}

template class Units<float>;
template class Units<double>;
template class Units<bf16>;

}  // namespace sinew::model
