// Many-source reductions: each thread reads a few packs of 16 bytes from every source in turn,
// combines them in registers, rounds once and stores once.
#include <algorithm>

#include "kernels/device/gpu.h"
#include "kernels/device/reduce_functions.h"
#include "kernels/device/shapes.h"
#include "kernels/reduce_gpu.h"
#include "sched/base/check.h"

namespace sinew::kernels {

struct ReduceSources {
  const void* pointer[kReduceSourcesMax];
  int count;
};

// Packs in flight per thread and source: a few times 16 bytes times 2,048 threads cover the latency
// of HBM. Each element takes a register of 32 bits, so that narrow types take fewer packs.
template <typename T>
constexpr int kPacksInFlight = sizeof(T) == 1   ? 1
                               : sizeof(T) == 2 ? 2
                                                : 4;

template <typename T>
GPU_FUNCTION gpu::Bytes16 load_pack(const void* source, std::int64_t pack) {
  return gpu::load16_once(static_cast<const char*>(source) + pack * 16);
}

// Packs [first, first + kPacksInFlight * step) in strides of `step`, those below `packs`.
template <ReduceOp op, typename T>
GPU_FUNCTION void reduce_packs(T* target, const ReduceSources& sources, std::int64_t first,
                               std::int64_t step, std::int64_t packs) {
  constexpr int kElements = Pack<T>::kCount;
  constexpr int kDepth = kPacksInFlight<T>;
  Wide<T> total[kDepth][kElements];
  for (int s = 0; s < sources.count; ++s) {
    gpu::Bytes16 loaded[kDepth];
    UNROLL for (int d = 0; d < kDepth; ++d) {
      const std::int64_t pack = first + d * step;
      if (pack < packs) loaded[d] = load_pack<T>(sources.pointer[s], pack);
    }
    UNROLL for (int d = 0; d < kDepth; ++d) {
      if (first + d * step >= packs) continue;
      const Pack<T> values = unpack<T>(loaded[d]);
      UNROLL for (int e = 0; e < kElements; ++e) {
        const Wide<T> value = to_wide(values.value[e]);
        total[d][e] = s == 0 ? value : combine<op>(total[d][e], value);
      }
    }
  }
  UNROLL for (int d = 0; d < kDepth; ++d) {
    const std::int64_t pack = first + d * step;
    if (pack >= packs) continue;
    Pack<T> result;
    UNROLL for (int e = 0; e < kElements; ++e) result.value[e] = from_wide<T>(total[d][e]);
    gpu::store16(reinterpret_cast<char*>(target) + pack * 16, to_bytes(result));
  }
}

// The first `packs` packs by 16-byte accesses (all pointers are then aligned to 16), the rest by
// elements.
template <ReduceOp op, typename T>
__global__ void __launch_bounds__(kStrideThreads)
    reduce_many_kernel(T* target, const __grid_constant__ ReduceSources sources, std::int64_t packs,
                       std::int64_t count) {
  const std::int64_t step = gpu::grid_threads();
  for (std::int64_t first = gpu::grid_thread(); first < packs; first += kPacksInFlight<T> * step) {
    reduce_packs<op>(target, sources, first, step, packs);
  }
  for (std::int64_t i = packs * Pack<T>::kCount + gpu::grid_thread(); i < count; i += step) {
    Wide<T> total = to_wide(static_cast<const T*>(sources.pointer[0])[i]);
    for (int s = 1; s < sources.count; ++s) {
      total = combine<op>(total, to_wide(static_cast<const T*>(sources.pointer[s])[i]));
    }
    target[i] = from_wide<T>(total);
  }
}

template <typename T>
__global__ void __launch_bounds__(kStrideThreads)
    scale_kernel(T* data, std::int64_t count, std::int64_t divisor) {
  using W = Divided<T>;
  for (std::int64_t i = gpu::grid_thread(); i < count; i += gpu::grid_threads()) {
    const W quotient = static_cast<W>(to_wide(data[i])) / static_cast<W>(divisor);
    data[i] = from_wide<T>(static_cast<Wide<T>>(quotient));
  }
}

namespace {

template <ReduceOp op, typename T>
void launch_many(void* target, const ReduceSources& sources, std::int64_t count,
                 device::Stream& stream) {
  bool aligned = is_aligned16(target);
  for (int s = 0; s < sources.count; ++s) aligned = aligned && is_aligned16(sources.pointer[s]);
  const std::int64_t packs = aligned ? count / Pack<T>::kCount : 0;
  const std::int64_t items =
      packs > 0 ? (packs + kPacksInFlight<T> - 1) / kPacksInFlight<T> : count;
  device::launch(reduce_many_kernel<op, T>, stride_shape(items), stream, static_cast<T*>(target),
                 sources, packs, count);
}

}  // namespace

void reduce_many(ReduceOp op, DType dtype, void* target, std::span<const void* const> sources,
                 std::int64_t count, device::Stream& stream) {
  CHECK_GE(sources.size(), 1U);
  CHECK_LE(sources.size(), std::size_t{kReduceSourcesMax});
  if (count == 0) return;
  ReduceSources list{};
  std::copy(sources.begin(), sources.end(), list.pointer);
  list.count = static_cast<int>(sources.size());
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        return launch_many<ReduceOp::kSum, T>(target, list, count, stream);
      case ReduceOp::kProd:
        return launch_many<ReduceOp::kProd, T>(target, list, count, stream);
      case ReduceOp::kMin:
        return launch_many<ReduceOp::kMin, T>(target, list, count, stream);
      case ReduceOp::kMax:
        return launch_many<ReduceOp::kMax, T>(target, list, count, stream);
    }
  });
}

void reduce(ReduceOp op, DType dtype, void* target, const void* left, const void* right,
            std::int64_t count, device::Stream& stream) {
  const void* sources[] = {left, right};
  reduce_many(op, dtype, target, sources, count, stream);
}

void scale(DType dtype, void* data, std::int64_t count, std::int64_t divisor,
           device::Stream& stream) {
  CHECK_GE(divisor, 1);
  if (count == 0 || divisor == 1) return;
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    device::launch(scale_kernel<T>, stride_shape(count), stream, static_cast<T*>(data), count,
                   divisor);
  });
}

}  // namespace sinew::kernels
