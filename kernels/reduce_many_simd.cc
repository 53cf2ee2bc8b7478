// The vector reductions of many sources: each source is read once, the running result stays in
// registers, and narrow floats stay widened until the one rounding at the end. See reduce_simd.cc
// for the last vector.
#include <cstring>
#include <span>

#include "kernels/reduce.h"
#include "kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_many_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/reduce_simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

using Sources = std::span<const void* const>;

template <typename E>
HWY_INLINE const E* source(Sources sources, std::size_t s) {
  return static_cast<const E*>(sources[s]);
}

template <ReduceOp op, class L, typename E>
HWY_INLINE typename L::Memory combined_at(Sources sources, std::int64_t i) {
  const typename L::D d;
  auto sum = L::widen(hn::LoadU(d, source<E>(sources, 0) + i));
  for (std::size_t s = 1; s < sources.size(); ++s) {
    sum = L::template combine_wide<op>(sum, L::widen(hn::LoadU(d, source<E>(sources, s) + i)));
  }
  return L::narrow(sum);
}

// The hardware follows few streams at once. Fetching each source's next two vectors by hand gives a
// sum of 8 sources from memory 33 instead of 30 GB/s (of 3 to 5: about 31 instead of 28; in cache:
// nothing), measured on an EPYC of the Zen 4 kind; other distances up to 4 KiB were no better.
constexpr std::int64_t kPrefetchBytes = 192;
// Of a source, from where on that is done: a piece as long may lie in memory, though the piece by
// itself would fit the cache.
constexpr std::int64_t kLeastPrefetchedBytes = 16 << 10;

// Where nothing is kept in the cache, farther: on an EPYC of the Zen 3 kind sums of two sources
// from memory into two places made 45, 49 and 53 GB/s at 16 MiB and 43, 43 and 41 at 64 MiB with
// 192, 512 and 1024 bytes.
constexpr std::int64_t kPrefetchPastCacheBytes = 512;

// Two vectors at a time: the loads of one hide behind the operations of the other.
template <ReduceOp op, class L, std::int64_t prefetch_bytes, typename E, class Store>
HWY_INLINE std::int64_t combine_pairs(Sources sources, std::int64_t i, std::int64_t count,
                                      const Store& store) {
  const typename L::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    auto first = L::widen(hn::LoadU(d, source<E>(sources, 0) + i));
    auto second = L::widen(hn::LoadU(d, source<E>(sources, 0) + i + lanes));
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const E* from = source<E>(sources, s) + i;
      if constexpr (prefetch_bytes > 0) {
        hwy::Prefetch(from + prefetch_bytes / sizeof(E));
        hwy::Prefetch(from + prefetch_bytes / sizeof(E) + lanes);
      }
      first = L::template combine_wide<op>(first, L::widen(hn::LoadU(d, from)));
      second = L::template combine_wide<op>(second, L::widen(hn::LoadU(d, from + lanes)));
    }
    store(L::narrow(first), L::narrow(second), i);
  }
  return i;
}

// Fewer elements than a vector holds.
template <ReduceOp op, typename T, typename E>
HWY_INLINE void many_small(E* t, Sources sources, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(E);
  const bool done = with_two_vectors<T>(bytes, [&](auto lanes) SINEW_LAMBDA {
    using L = decltype(lanes);
    const typename L::D d;
    const std::int64_t second = count - static_cast<std::int64_t>(hn::MaxLanes(d));
    const auto last = combined_at<op, L, E>(sources, second);
    hn::StoreU(combined_at<op, L, E>(sources, 0), d, t);
    hn::StoreU(last, d, t + second);
  });
  if (done || count == 0) return;
  using L = FixedLanes<T, 8>;
  const typename L::D d;
  auto sum = L::widen(load_few(d, source<E>(sources, 0), count));
  for (std::size_t s = 1; s < sources.size(); ++s) {
    sum = L::template combine_wide<op>(sum, L::widen(load_few(d, source<E>(sources, s), count)));
  }
  store_few(L::narrow(sum), d, t, count);
}

template <typename E>
bool is_among(const E* target, Sources sources) {
  for (const void* one : sources) {
    if (one == target) return true;
  }
  return false;
}

template <ReduceOp op, typename T>
void many(void* target, Sources sources, std::int64_t count) {
  using L = FullLanes<T>;
  using E = Stored<T>;
  const typename L::D d;
  auto* t = static_cast<E*>(target);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count < lanes) return many_small<op, T>(t, sources, count);
  const auto last = combined_at<op, L, E>(sources, count - lanes);
  std::int64_t i = 0;
  const std::int64_t bytes_touched =
      static_cast<std::int64_t>(sources.size() + 1) * count * static_cast<std::int64_t>(sizeof(E));
  if (bypasses_cache(bytes_touched) && !is_among(t, sources)) {
    hn::StoreU(combined_at<op, L, E>(sources, 0), d, t);
    i = combine_pairs<op, L, kPrefetchBytes, E>(sources, elements_to_alignment(t, lanes), count,
                                                [&](auto first, auto second, std::int64_t at)
                                                    SINEW_LAMBDA {
                                                      store_past_cache(first, d, t + at);
                                                      store_past_cache(second, d, t + at + lanes);
                                                    });
    hwy::FlushStream();
  } else {
    const auto store = [&](auto first, auto second, std::int64_t at) SINEW_LAMBDA {
      hn::StoreU(first, d, t + at);
      hn::StoreU(second, d, t + at + lanes);
    };
    i = count * static_cast<std::int64_t>(sizeof(E)) < kLeastPrefetchedBytes
            ? combine_pairs<op, L, 0, E>(sources, 0, count, store)
            : combine_pairs<op, L, kPrefetchBytes, E>(sources, 0, count, store);
  }
  if (i + lanes <= count) hn::StoreU(combined_at<op, L, E>(sources, i), d, t + i);
  hn::StoreU(last, d, t + count - lanes);
}

// Whole lines from the first one of the targets on; the vectors at both ends, which may overlap
// them, are combined before anything is written and stored after it. A target's line is stored at
// once: half lines of many targets would not find places enough to wait for their other halves.
template <ReduceOp op, typename T>
void many_to(std::span<void* const> targets, Sources sources, std::int64_t count) {
  using L = FullLanes<T>;
  using E = Stored<T>;
  const typename L::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count < 2 * lanes) {
    many<op, T>(targets[0], sources, count);
    for (void* target : targets.subspan(1))
      std::memcpy(target, targets[0], static_cast<std::size_t>(count) * sizeof(E));
    return;
  }
  const auto first = combined_at<op, L, E>(sources, 0);
  const auto second = combined_at<op, L, E>(sources, lanes);
  const auto last_but_one = combined_at<op, L, E>(sources, count - 2 * lanes);
  const auto last = combined_at<op, L, E>(sources, count - lanes);
  combine_pairs<op, L, kPrefetchPastCacheBytes, E>(
      sources, elements_to_alignment(static_cast<const E*>(targets[0]), 2 * lanes), count,
      [&](auto low, auto high, std::int64_t at) SINEW_LAMBDA {
        for (void* target : targets) {
          E* const t = static_cast<E*>(target) + at;
          store_past_cache(low, d, t);
          store_past_cache(high, d, t + lanes);
        }
      });
  hwy::FlushStream();
  for (void* target : targets) {
    E* const t = static_cast<E*>(target);
    hn::StoreU(first, d, t);
    hn::StoreU(second, d, t + lanes);
    hn::StoreU(last_but_one, d, t + count - 2 * lanes);
    hn::StoreU(last, d, t + count - lanes);
  }
}

template <typename T>
void set_type(ReduceFunctions& table, DType dtype) {
  auto& to = table.many_to[static_cast<std::size_t>(dtype)];
  to[static_cast<std::size_t>(ReduceOp::kSum)] = many_to<ReduceOp::kSum, T>;
  to[static_cast<std::size_t>(ReduceOp::kAvg)] = many_to<ReduceOp::kSum, T>;
  to[static_cast<std::size_t>(ReduceOp::kProd)] = many_to<ReduceOp::kProd, T>;
  to[static_cast<std::size_t>(ReduceOp::kMin)] = many_to<ReduceOp::kMin, T>;
  to[static_cast<std::size_t>(ReduceOp::kMax)] = many_to<ReduceOp::kMax, T>;
  auto& row = table.many[static_cast<std::size_t>(dtype)];
  row[static_cast<std::size_t>(ReduceOp::kSum)] = many<ReduceOp::kSum, T>;
  row[static_cast<std::size_t>(ReduceOp::kAvg)] = many<ReduceOp::kSum, T>;
  row[static_cast<std::size_t>(ReduceOp::kProd)] = many<ReduceOp::kProd, T>;
  row[static_cast<std::size_t>(ReduceOp::kMin)] = many<ReduceOp::kMin, T>;
  row[static_cast<std::size_t>(ReduceOp::kMax)] = many<ReduceOp::kMax, T>;
}

}  // namespace

void set_many(ReduceFunctions& table) {
  for (const DTypeInfo& row : kDTypes) {
    visit(row.dtype, [&](auto zero) { set_type<decltype(zero)>(table, row.dtype); });
  }
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
