#include "kernels/reduce.h"

#include <algorithm>
#include <cstring>

#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {

void reduce(ReduceOp op, DType dtype, void* target, const void* left, const void* right,
            std::int64_t count) {
  best<ReduceFunctions>().binary[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)](
      target, left, right, count);
}

void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources,
                 std::int64_t count) {
  CHECK(!sources.empty());
  best<ReduceFunctions>().many[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)](
      target, sources, count);
}

void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources,
                 std::int64_t count, Stores stores) {
  if (stores == Stores::kPastCache && std::ranges::find(sources, target) == sources.end()) {
    reduce_many_to(op, dtype, {&target, 1}, sources, count);
  } else if (sources.size() == 2) {
    reduce(op, dtype, target, sources[0], sources[1], count);
  } else {
    reduce_many(op, dtype, target, sources, count);
  }
}

void reduce_many_to(ReduceOp op, DType dtype, std::span<void* const> targets,
                    std::span<const void* const> sources, std::int64_t count) {
  CHECK(!targets.empty());
  CHECK(!sources.empty());
  best<ReduceFunctions>().many_to[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)](
      targets, sources, count);
}

void scale(DType dtype, void* data, std::int64_t count, std::int64_t divisor) {
  CHECK_GE(divisor, 1);
  best<ReduceFunctions>().scale[static_cast<std::size_t>(dtype)](data, count, divisor);
}

namespace {

// Below, the C library is as fast and spares the look at the table (4 ns).
constexpr std::int64_t kLeastVectorBytes = 2 << 10;

}  // namespace

void copy(void* target, const void* source, std::int64_t size_bytes, Stores stores) {
  if (size_bytes < kLeastVectorBytes) {
    // Not memcpy, which GCC makes `rep movsq` where it knows that few bytes are copied.
    if (size_bytes > 0) std::memmove(target, source, static_cast<std::size_t>(size_bytes));
    return;
  }
  best<ReduceFunctions>().copy[static_cast<std::size_t>(stores)](target, source, size_bytes);
}

void copy(void* target, const void* source, std::int64_t size_bytes) {
  copy(target, source, size_bytes, stores_for(2 * size_bytes));
}

}  // namespace sinew::kernels
