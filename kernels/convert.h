// Conversions of arrays between f32 and the narrow floats. Every version gives the same bits (NaN
// payloads aside).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/float8.h"
#include "kernels/threads.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

// Nearest even on the way to 16 bits (values beyond the largest become infinities), exact on the
// way back. source: [count], target: [count], no overlap. Pairs: float to bf16, f16; bf16, f16 to
// float.
template <typename From, typename To>
void convert(const From* source, To* target, std::int64_t count, Threads threads = {});

// target = source * scale rounded once more to 8 bits, as to_float8 does: beyond the largest value
// (448 or 57344) it is that value. To is e4m3 or e5m2. A scale of largest / max_abs(source) uses
// the whole range.
template <typename To>
void quantize(const float* source, float scale, To* target, std::int64_t count,
              Threads threads = {});
// target = source * scale.
template <typename From>
void dequantize(const From* source, float scale, float* target, std::int64_t count,
                Threads threads = {});

// The largest magnitude; 0 for none. NaNs are passed over.
[[nodiscard]] float max_abs(const float* data, std::int64_t count);

// What one version provides; see registry.h.
struct ConvertFunctions {
  static constexpr std::string_view kOperation = "convert";
  using Element = void;
  void (*to_bf16)(const float* source, bf16* target, std::int64_t count);
  void (*from_bf16)(const bf16* source, float* target, std::int64_t count);
  void (*to_f16)(const float* source, f16* target, std::int64_t count);
  void (*from_f16)(const f16* source, float* target, std::int64_t count);
  void (*to_e4m3)(const float* source, float scale, e4m3* target, std::int64_t count);
  void (*from_e4m3)(const e4m3* source, float scale, float* target, std::int64_t count);
  void (*to_e5m2)(const float* source, float scale, e5m2* target, std::int64_t count);
  void (*from_e5m2)(const e5m2* source, float scale, float* target, std::int64_t count);
  float (*max_abs)(const float* data, std::int64_t count);
};
[[nodiscard]] const ConvertFunctions& convert_plain();
// Null where this build has no code for `isa`.
[[nodiscard]] const ConvertFunctions* convert_simd(Isa isa);

}  // namespace sinew::kernels
