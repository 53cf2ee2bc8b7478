// The plain reductions: one element at a time, written to be read.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/element.h"
#include "kernels/reduce.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {
namespace {

template <typename W>
W minimum(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    if (std::isnan(a) || std::isnan(b)) return a + b;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <typename W>
W maximum(W a, W b) {
  if constexpr (std::is_floating_point_v<W>) {
    if (std::isnan(a) || std::isnan(b)) return a + b;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <ReduceOp op, typename W>
W combine(W a, W b) {
  // 64 bits so that no promotion of a narrower unsigned type makes the product signed.
  using Unsigned = std::uint64_t;
  if constexpr (op == ReduceOp::kMin) {
    return minimum(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return maximum(a, b);
  } else if constexpr (op == ReduceOp::kProd) {
    if constexpr (std::is_floating_point_v<W>) return a * b;
    return static_cast<W>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  } else {
    static_assert(op == ReduceOp::kSum || op == ReduceOp::kAvg);
    if constexpr (std::is_floating_point_v<W>) return a + b;
    return static_cast<W>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
}

template <ReduceOp op, typename T>
void binary(void* target, const void* left, const void* right, std::int64_t count) {
  auto* t = static_cast<T*>(target);
  const auto* a = static_cast<const T*>(left);
  const auto* b = static_cast<const T*>(right);
  for (std::int64_t i = 0; i < count; ++i) {
    t[i] = narrow<T>(combine<op>(widen(a[i]), widen(b[i])));
  }
}

template <ReduceOp op, typename T>
void many(void* target, std::span<const void* const> sources, std::int64_t count) {
  auto* t = static_cast<T*>(target);
  for (std::int64_t i = 0; i < count; ++i) {
    auto sum = widen(static_cast<const T*>(sources[0])[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      sum = combine<op>(sum, widen(static_cast<const T*>(sources[s])[i]));
    }
    t[i] = narrow<T>(sum);
  }
}

template <ReduceOp op, typename T>
void many_to(std::span<void* const> targets, std::span<const void* const> sources,
             std::int64_t count) {
  many<op, T>(targets[0], sources, count);
  for (void* target : targets.subspan(1))
    std::memcpy(target, targets[0], static_cast<std::size_t>(count) * sizeof(T));
}

template <typename T>
void scale_by(void* data, std::int64_t count, std::int64_t divisor) {
  auto* d = static_cast<T*>(data);
  using W = Divided<T>;
  for (std::int64_t i = 0; i < count; ++i) {
    const W quotient = static_cast<W>(widen(d[i])) / static_cast<W>(divisor);
    d[i] = narrow<T>(static_cast<Wide<T>>(quotient));
  }
}

ReduceFunctions make_table() {
  ReduceFunctions table{};
  for (const DTypeInfo& row : kDTypes) {
    const auto d = static_cast<std::size_t>(row.dtype);
    visit(row.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto set = [&]<ReduceOp op>() {
        table.binary[d][static_cast<std::size_t>(op)] = binary<op, T>;
        table.many[d][static_cast<std::size_t>(op)] = many<op, T>;
        table.many_to[d][static_cast<std::size_t>(op)] = many_to<op, T>;
      };
      set.template operator()<ReduceOp::kSum>();
      set.template operator()<ReduceOp::kProd>();
      set.template operator()<ReduceOp::kMin>();
      set.template operator()<ReduceOp::kMax>();
      set.template operator()<ReduceOp::kAvg>();
      table.scale[d] = scale_by<T>;
    });
  }
  for (ReduceFunctions::Copy& copy : table.copy) {
    copy = [](void* target, const void* source, std::int64_t size_bytes) {
      if (size_bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(size_bytes));
    };
  }
  return table;
}

}  // namespace

const ReduceFunctions& reduce_plain() {
  static const ReduceFunctions table = make_table();
  return table;
}

}  // namespace sinew::kernels
