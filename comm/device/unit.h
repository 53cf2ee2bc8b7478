// Units of 16 bytes inside kernels: loading and storing them at any element's alignment, and
// reducing two of them. Element type and reduction are values, not template parameters: the switch
// is the same for all threads, and one kernel serves all types.
#pragma once

#include <cstdint>

#include "comm/device/protocol.h"
#include "kernels/device/gpu.h"
#include "kernels/device/reduce_functions.h"
#include "sched/base/dtype.h"

namespace sinew::comm {

struct Elements {
  DType dtype;
  ReduceOp reduce;
  int size_bytes;
};

// Memory may hold any element type.
template <typename Word>
struct [[gnu::may_alias]] AnyWord {
  Word value;
};

// The first `valid` bytes, words of type Word.
template <typename Word>
GPU_FUNCTION gpu::Bytes16 load_words(const char* p, int valid) {
  constexpr int kSize = sizeof(Word);
  gpu::Bytes16 unit{};
  UNROLL for (int i = 0; i < kUnitBytes / kSize; ++i) {
    if (i * kSize >= valid) continue;
    const auto word =
        static_cast<std::uint64_t>(reinterpret_cast<const AnyWord<Word>*>(p)[i].value);
    unit.word[i * kSize / 4] |= static_cast<std::uint32_t>(word << (8 * (i * kSize % 4)));
    if constexpr (kSize == 8) unit.word[2 * i + 1] = static_cast<std::uint32_t>(word >> 32);
  }
  return unit;
}

template <typename Word>
GPU_FUNCTION void store_words(char* p, const gpu::Bytes16& unit, int valid) {
  constexpr int kSize = sizeof(Word);
  UNROLL for (int i = 0; i < kUnitBytes / kSize; ++i) {
    if (i * kSize >= valid) continue;
    std::uint64_t word = unit.word[i * kSize / 4] >> (8 * (i * kSize % 4));
    if constexpr (kSize == 8) word |= static_cast<std::uint64_t>(unit.word[2 * i + 1]) << 32;
    reinterpret_cast<AnyWord<Word>*>(p)[i].value = static_cast<Word>(word);
  }
}

GPU_FUNCTION bool is_whole(const char* p, int valid) {
  return valid >= kUnitBytes && reinterpret_cast<std::uintptr_t>(p) % kUnitBytes == 0;
}

// valid may lie outside 0 to 16: more is all, less is nothing.
GPU_FUNCTION gpu::Bytes16 load_unit(const char* p, int valid, int element_bytes) {
  if (is_whole(p, valid)) return *reinterpret_cast<const gpu::Bytes16*>(p);
  switch (element_bytes) {
    case 1:
      return load_words<std::uint8_t>(p, valid);
    case 2:
      return load_words<std::uint16_t>(p, valid);
    case 4:
      return load_words<std::uint32_t>(p, valid);
    default:
      return load_words<std::uint64_t>(p, valid);
  }
}

GPU_FUNCTION void store_unit(char* p, const gpu::Bytes16& unit, int valid, int element_bytes) {
  if (is_whole(p, valid)) return gpu::store16(p, unit);
  switch (element_bytes) {
    case 1:
      return store_words<std::uint8_t>(p, unit, valid);
    case 2:
      return store_words<std::uint16_t>(p, unit, valid);
    case 4:
      return store_words<std::uint32_t>(p, unit, valid);
    default:
      return store_words<std::uint64_t>(p, unit, valid);
  }
}

template <ReduceOp op, typename T>
GPU_FUNCTION gpu::Bytes16 combine_as(const gpu::Bytes16& left, const gpu::Bytes16& right) {
  const kernels::Pack<T> a = kernels::unpack<T>(left);
  const kernels::Pack<T> b = kernels::unpack<T>(right);
  kernels::Pack<T> result;
  UNROLL for (int i = 0; i < kernels::Pack<T>::kCount; ++i) {
    result.value[i] = kernels::from_wide<T>(
        kernels::combine<op>(kernels::to_wide(a.value[i]), kernels::to_wide(b.value[i])));
  }
  return kernels::to_bytes(result);
}

template <ReduceOp op>
GPU_FUNCTION gpu::Bytes16 combine_by(DType dtype, const gpu::Bytes16& left,
                                     const gpu::Bytes16& right) {
  switch (dtype) {
    case DType::kF32:
      return combine_as<op, float>(left, right);
    case DType::kF64:
      return combine_as<op, double>(left, right);
    case DType::kBf16:
      return combine_as<op, bf16>(left, right);
    case DType::kF16:
      return combine_as<op, f16>(left, right);
    case DType::kI32:
      return combine_as<op, std::int32_t>(left, right);
    case DType::kI64:
      return combine_as<op, std::int64_t>(left, right);
    case DType::kU8:
      return combine_as<op, std::uint8_t>(left, right);
    case DType::kI8:
      return combine_as<op, std::int8_t>(left, right);
    case DType::kU32:
      return combine_as<op, std::uint32_t>(left, right);
    case DType::kU64:
      return combine_as<op, std::uint64_t>(left, right);
    case DType::kE4m3:
      return combine_as<op, e4m3>(left, right);
    case DType::kE5m2:
      return combine_as<op, e5m2>(left, right);
  }
  return left;
}

// left (+) right, element by element; one rounding, as kernels/reduce.h has it.
GPU_FUNCTION gpu::Bytes16 combine_units(const Elements& elements, const gpu::Bytes16& left,
                                        const gpu::Bytes16& right) {
  switch (elements.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return combine_by<ReduceOp::kSum>(elements.dtype, left, right);
    case ReduceOp::kProd:
      return combine_by<ReduceOp::kProd>(elements.dtype, left, right);
    case ReduceOp::kMin:
      return combine_by<ReduceOp::kMin>(elements.dtype, left, right);
    case ReduceOp::kMax:
      return combine_by<ReduceOp::kMax>(elements.dtype, left, right);
  }
  return left;
}

}  // namespace sinew::comm
