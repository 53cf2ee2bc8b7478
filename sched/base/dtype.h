// Element types and reductions: their names, sizes and the one place that dispatches on them.
// 16- and 8-bit floats are stored as their bits; arithmetic on them widens to f32. e4m3 and e5m2
// are those of the OCP specification (2023); kernels/float8.h converts them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace sinew {

enum class DType : std::uint8_t {
  kF32,
  kF64,
  kBf16,
  kF16,
  kI32,
  kI64,
  kU8,
  kI8,
  kU32,
  kU64,
  kE4m3,
  kE5m2
};
enum class ReduceOp : std::uint8_t { kSum, kProd, kMin, kMax, kAvg };

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};
struct e4m3 {
  std::uint8_t bits;
};
struct e5m2 {
  std::uint8_t bits;
};
static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2 && sizeof(e4m3) == 1 && sizeof(e5m2) == 1);

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t size_bytes;
  bool is_float;
};

inline constexpr std::array<DTypeInfo, 12> kDTypes = {{
    {DType::kF32, "f32", 4, true},
    {DType::kF64, "f64", 8, true},
    {DType::kBf16, "bf16", 2, true},
    {DType::kF16, "f16", 2, true},
    {DType::kI32, "i32", 4, false},
    {DType::kI64, "i64", 8, false},
    {DType::kU8, "u8", 1, false},
    {DType::kI8, "i8", 1, false},
    {DType::kU32, "u32", 4, false},
    {DType::kU64, "u64", 8, false},
    {DType::kE4m3, "e4m3", 1, true},
    {DType::kE5m2, "e5m2", 1, true},
}};

struct ReduceOpInfo {
  ReduceOp op;
  std::string_view name;
};

inline constexpr std::array<ReduceOpInfo, 5> kReduceOps = {{
    {ReduceOp::kSum, "sum"},
    {ReduceOp::kProd, "prod"},
    {ReduceOp::kMin, "min"},
    {ReduceOp::kMax, "max"},
    {ReduceOp::kAvg, "avg"},
}};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr const ReduceOpInfo& info(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }
constexpr std::size_t size_of(DType dtype) { return info(dtype).size_bytes; }
constexpr std::string_view name_of(DType dtype) { return info(dtype).name; }
constexpr std::string_view name_of(ReduceOp op) { return info(op).name; }

// Throw UsageError naming the legal values when `name` is none of them.
[[nodiscard]] DType parse_dtype(std::string_view name);
[[nodiscard]] ReduceOp parse_reduce_op(std::string_view name);

// Calls `function` with a value of the C++ type that stores `dtype`: visit(dtype, [](auto zero)
// {...}).
template <typename Function>
constexpr decltype(auto) visit(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(float{});
    case DType::kF64:
      return function(double{});
    case DType::kBf16:
      return function(bf16{});
    case DType::kF16:
      return function(f16{});
    case DType::kI32:
      return function(std::int32_t{});
    case DType::kI64:
      return function(std::int64_t{});
    case DType::kU8:
      return function(std::uint8_t{});
    case DType::kI8:
      return function(std::int8_t{});
    case DType::kU32:
      return function(std::uint32_t{});
    case DType::kU64:
      return function(std::uint64_t{});
    case DType::kE4m3:
      return function(e4m3{});
    case DType::kE5m2:
      return function(e5m2{});
  }
  __builtin_unreachable();
}

// Scalar conversions, round to nearest even; NaN stays NaN. Exact in the widening direction.
[[nodiscard]] float to_float(bf16 value);
[[nodiscard]] float to_float(f16 value);
[[nodiscard]] bf16 to_bf16(float value);
[[nodiscard]] f16 to_f16(float value);

}  // namespace sinew
