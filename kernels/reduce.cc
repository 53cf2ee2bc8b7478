#include "kernels/reduce.h"

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

void scale(DType dtype, void* data, std::int64_t count, std::int64_t divisor) {
  CHECK_GE(divisor, 1);
  best<ReduceFunctions>().scale[static_cast<std::size_t>(dtype)](data, count, divisor);
}

void copy(void* target, const void* source, std::int64_t size_bytes) {
  best<ReduceFunctions>().copy(target, source, size_bytes);
}

void copy_streaming(void* target, const void* source, std::int64_t size_bytes) {
  best<ReduceFunctions>().copy_streaming(target, source, size_bytes);
}

}  // namespace sinew::kernels
