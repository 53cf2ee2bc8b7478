// The vector reductions of two operands, the division that ends an average, and the copy.
//
// The last, possibly overlapping vector is combined before anything is written and stored after
// everything else: no element-by-element tail, and still right when target is an operand. Outputs
// that do not fit the cache bypass it, which saves reading them first (3 instead of 4 units of
// traffic for 2 operands).
#include <cstring>
#include <span>

#include "kernels/reduce.h"
#include "kernels/registry.h"
#include "kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_simd.cc"
#include "kernels/simd_targets.h"

#if SINEW_SIMD_BODY
#include "kernels/reduce_simd_inl.h"
HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {
namespace {

template <ReduceOp op, class L, typename E>
HWY_INLINE typename L::Memory combined_at(const E* a, const E* b) {
  const typename L::D d;
  const auto wide_a = L::widen(hn::LoadU(d, a));
  return L::narrow(L::template combine_wide<op>(wide_a, L::widen(hn::LoadU(d, b))));
}

// Fewer elements than a vector holds.
template <ReduceOp op, typename T, typename E>
HWY_INLINE void binary_small(E* t, const E* a, const E* b, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(E);
  const bool done = with_two_vectors<T>(bytes, [&](auto lanes) SINEW_LAMBDA {
    using L = decltype(lanes);
    const typename L::D d;
    const std::int64_t second = count - static_cast<std::int64_t>(hn::MaxLanes(d));
    const auto last = combined_at<op, L>(a + second, b + second);
    hn::StoreU(combined_at<op, L>(a, b), d, t);
    hn::StoreU(last, d, t + second);
  });
  if (done || count == 0) return;
  using L = FixedLanes<T, 8>;
  const typename L::D d;
  const auto wide_a = L::widen(load_few(d, a, count));
  const auto wide_b = L::widen(load_few(d, b, count));
  store_few(L::narrow(L::template combine_wide<op>(wide_a, wide_b)), d, t, count);
}

// Writes whole vectors past the cache from the first aligned element on; returns how many elements
// are done.
template <ReduceOp op, class L, typename E>
HWY_NOINLINE std::int64_t binary_streaming(E* t, const E* a, const E* b, std::int64_t count) {
  const typename L::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::StoreU(combined_at<op, L>(a, b), d, t);
  std::int64_t i = elements_to_alignment(t, lanes);
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = combined_at<op, L>(a + i, b + i);
    const auto second = combined_at<op, L>(a + i + lanes, b + i + lanes);
    store_past_cache(first, d, t + i);
    store_past_cache(second, d, t + i + lanes);
  }
  hwy::FlushStream();
  return i;
}

template <ReduceOp op, typename T>
void binary(void* target, const void* left, const void* right, std::int64_t count) {
  using L = FullLanes<T>;
  using E = Stored<T>;
  const typename L::D d;
  auto* t = static_cast<E*>(target);
  const auto* a = static_cast<const E*>(left);
  const auto* b = static_cast<const E*>(right);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count < lanes) return binary_small<op, T>(t, a, b, count);
  const auto last = combined_at<op, L>(a + count - lanes, b + count - lanes);
  std::int64_t i = 0;
  if (t != a && t != b && bypasses_cache(3 * count * static_cast<std::int64_t>(sizeof(E)))) {
    i = binary_streaming<op, L>(t, a, b, count);
  }
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto first = combined_at<op, L>(a + i, b + i);
    const auto second = combined_at<op, L>(a + i + lanes, b + i + lanes);
    hn::StoreU(first, d, t + i);
    hn::StoreU(second, d, t + i + lanes);
  }
  if (i + lanes <= count) hn::StoreU(combined_at<op, L>(a + i, b + i), d, t + i);
  hn::StoreU(last, d, t + count - lanes);
}

template <typename T>
HWY_INLINE typename FullLanes<T>::Memory divided(typename FullLanes<T>::Memory value,
                                                 std::int64_t divisor) {
  using L = FullLanes<T>;
  const auto wide = L::widen(value);
  if constexpr (std::is_same_v<T, bf16>) {
    const auto by = hn::Set(typename L::DFloat(), static_cast<float>(divisor));
    return L::narrow({hn::Div(wide.first, by), hn::Div(wide.second, by)});
  } else {
    using D = hn::DFromV<typename L::Wide>;
    return L::narrow(hn::Div(wide, hn::Set(D(), static_cast<hn::TFromD<D>>(divisor))));
  }
}

template <typename T>
void scale_by(void* data, std::int64_t count, std::int64_t divisor) {
  const typename FullLanes<T>::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* x = static_cast<Stored<T>*>(data);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(divided<T>(hn::LoadU(d, x + i), divisor), d, x + i);
  }
  if (i < count) {
    const auto rest = static_cast<std::size_t>(count - i);
    store_part(divided<T>(load_part(d, x + i, rest), divisor), d, x + i, rest);
  }
}

// Whole vectors from the first aligned byte of the target on, so that no store crosses a line;
// then one that ends with the last byte.
template <Stores stores>
void copy_bytes(void* target, const void* source, std::int64_t size_bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto* t = static_cast<std::uint8_t*>(target);
  const auto* s = static_cast<const std::uint8_t*>(source);
  if (size_bytes < lanes) {
    if (size_bytes > 0) std::memcpy(t, s, static_cast<std::size_t>(size_bytes));
    return;
  }
  const auto store = [&](auto value, std::int64_t at) SINEW_LAMBDA {
    if constexpr (stores == Stores::kPastCache) {
      hn::Stream(value, d, t + at);
    } else {
      hn::Store(value, d, t + at);
    }
  };
  hn::StoreU(hn::LoadU(d, s), d, t);
  std::int64_t i = elements_to_alignment(t, lanes);
  for (; i + 4 * lanes <= size_bytes; i += 4 * lanes) {
    const auto first = hn::LoadU(d, s + i);
    const auto second = hn::LoadU(d, s + i + lanes);
    const auto third = hn::LoadU(d, s + i + 2 * lanes);
    const auto fourth = hn::LoadU(d, s + i + 3 * lanes);
    store(first, i);
    store(second, i + lanes);
    store(third, i + 2 * lanes);
    store(fourth, i + 3 * lanes);
  }
  for (; i + lanes <= size_bytes; i += lanes) store(hn::LoadU(d, s + i), i);
  if constexpr (stores == Stores::kPastCache) hwy::FlushStream();
  if (i < size_bytes) {
    hn::StoreU(hn::LoadU(d, s + size_bytes - lanes), d, t + size_bytes - lanes);
  }
}

template <typename T>
void set_type(ReduceFunctions& table, DType dtype) {
  auto& row = table.binary[static_cast<std::size_t>(dtype)];
  row[static_cast<std::size_t>(ReduceOp::kSum)] = binary<ReduceOp::kSum, T>;
  row[static_cast<std::size_t>(ReduceOp::kAvg)] = binary<ReduceOp::kSum, T>;
  row[static_cast<std::size_t>(ReduceOp::kProd)] = binary<ReduceOp::kProd, T>;
  row[static_cast<std::size_t>(ReduceOp::kMin)] = binary<ReduceOp::kMin, T>;
  row[static_cast<std::size_t>(ReduceOp::kMax)] = binary<ReduceOp::kMax, T>;
  // Integer division has no vector form and an average of integers is rare: those stay plain.
  if constexpr (!std::is_integral_v<T>) table.scale[static_cast<std::size_t>(dtype)] = scale_by<T>;
}

}  // namespace

const ReduceFunctions& reduce_table() {
  static const ReduceFunctions table = [] {
    ReduceFunctions built = reduce_plain();
    for (const DTypeInfo& row : kDTypes) {
      visit(row.dtype, [&](auto zero) { set_type<decltype(zero)>(built, row.dtype); });
    }
    built.copy[static_cast<std::size_t>(Stores::kCached)] = copy_bytes<Stores::kCached>;
    built.copy[static_cast<std::size_t>(Stores::kPastCache)] = copy_bytes<Stores::kPastCache>;
    set_many(built);
    return built;
  }();
  return table;
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace sinew::kernels {

const ReduceFunctions* reduce_simd(Isa isa) {
  const ReduceFunctions& (*const table)() = SINEW_SIMD_VERSION(isa, reduce_table);
  return table != nullptr ? &table() : nullptr;
}

}  // namespace sinew::kernels
#endif
