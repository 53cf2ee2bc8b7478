#include "sched/base/dtype.h"

#include <bit>
#include <cmath>
#include <string>

#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew {

namespace {

template <typename Rows, typename Get>
auto parse_row(std::string_view kind, std::string_view name, const Rows& rows, Get get) {
  std::string legal;
  for (const auto& row : rows) {
    if (row.name == name) return get(row);
    legal += legal.empty() ? "" : ", ";
    legal += row.name;
  }
  throw UsageError(std::string(kind) + " '" + std::string(name) +
                   "' is unknown; legal values: " + legal);
}

}  // namespace

DType parse_dtype(std::string_view name) {
  return parse_row("dtype", name, kDTypes, [](const DTypeInfo& row) { return row.dtype; });
}

ReduceOp parse_reduce_op(std::string_view name) {
  return parse_row("reduction", name, kReduceOps, [](const ReduceOpInfo& row) { return row.op; });
}

float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

float to_float(f16 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = value.bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -magnitude : magnitude;
}

f16 to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return {static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU))};
  }
  if (magnitude >= 0x477ff000U)
    return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // rounds to infinity
  if (magnitude >= 0x38800000U) {  // normal in f16: drop 13 bits, ties to even
    const std::uint32_t rounded = magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U);
    return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
  }
  // Subnormal: adding 0.5 aligns the value so that the adder itself rounds to a multiple of 2^-24.
  const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
  return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000U))};
}

}  // namespace sinew
