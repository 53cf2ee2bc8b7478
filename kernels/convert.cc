#include "kernels/convert.h"

#include "kernels/accelerator.h"
#include "kernels/grain.h"
#include "kernels/registry.h"
#include "sched/base/check.h"

namespace sinew::kernels {
namespace {

template <typename From, typename To>
void run(void (*function)(const From*, To*, std::int64_t), const From* source, To* target,
         std::int64_t count, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    function(source + begin, target + begin, end - begin);
  });
}

template <typename From, typename To>
void run_scaled(void (*function)(const From*, float, To*, std::int64_t), const From* source,
                float scale, To* target, std::int64_t count, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  parallel_for(threads, count, kGrainElements, [&](std::int64_t begin, std::int64_t end) {
    function(source + begin, scale, target + begin, end - begin);
  });
}

}  // namespace

template <>
void convert(const float* source, bf16* target, std::int64_t count, Threads threads) {
  if (threads.accelerator != nullptr) return threads.accelerator->convert(source, target, count);
  run(best<ConvertFunctions>().to_bf16, source, target, count, threads);
}
template <>
void convert(const bf16* source, float* target, std::int64_t count, Threads threads) {
  run(best<ConvertFunctions>().from_bf16, source, target, count, threads);
}
template <>
void convert(const float* source, f16* target, std::int64_t count, Threads threads) {
  run(best<ConvertFunctions>().to_f16, source, target, count, threads);
}
template <>
void convert(const f16* source, float* target, std::int64_t count, Threads threads) {
  run(best<ConvertFunctions>().from_f16, source, target, count, threads);
}

template <>
void quantize(const float* source, float scale, e4m3* target, std::int64_t count, Threads threads) {
  run_scaled(best<ConvertFunctions>().to_e4m3, source, scale, target, count, threads);
}
template <>
void quantize(const float* source, float scale, e5m2* target, std::int64_t count, Threads threads) {
  run_scaled(best<ConvertFunctions>().to_e5m2, source, scale, target, count, threads);
}
template <>
void dequantize(const e4m3* source, float scale, float* target, std::int64_t count,
                Threads threads) {
  run_scaled(best<ConvertFunctions>().from_e4m3, source, scale, target, count, threads);
}
template <>
void dequantize(const e5m2* source, float scale, float* target, std::int64_t count,
                Threads threads) {
  run_scaled(best<ConvertFunctions>().from_e5m2, source, scale, target, count, threads);
}

float max_abs(const float* data, std::int64_t count) {
  return best<ConvertFunctions>().max_abs(data, count);
}

}  // namespace sinew::kernels
