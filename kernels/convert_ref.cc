// The plain conversions: the scalar ones, element by element.
#include <cmath>

#include "kernels/convert.h"

namespace sinew::kernels {
namespace {

template <typename T>
void to_narrow(const float* source, T* target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, bf16>) {
      target[i] = to_bf16(source[i]);
    } else {
      target[i] = to_f16(source[i]);
    }
  }
}

template <typename T>
void from_narrow(const T* source, float* target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = sinew::to_float(source[i]);
}

template <typename T>
void to_8(const float* source, float scale, T* target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = to_float8<T>(source[i] * scale);
}

template <typename T>
void from_8(const T* source, float scale, float* target, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = to_float(source[i]) * scale;
}

float largest(const float* data, std::int64_t count) {
  float result = 0;
  for (std::int64_t i = 0; i < count; ++i) result = std::fmax(result, std::fabs(data[i]));
  return result;
}

}  // namespace

const ConvertFunctions& convert_plain() {
  static constexpr ConvertFunctions table = {to_narrow<bf16>,  from_narrow<bf16>, to_narrow<f16>,
                                             from_narrow<f16>, to_8<e4m3>,        from_8<e4m3>,
                                             to_8<e5m2>,       from_8<e5m2>,      largest};
  return table;
}

}  // namespace sinew::kernels
