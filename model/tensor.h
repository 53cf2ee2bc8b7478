// Tensor: a view of a row-major array in host memory that something else owns: a mapped file, an
// arena.
//
// Never does: own or move memory. Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/base/dtype.h"

namespace sinew::model {

struct Tensor {
  const std::byte* data = nullptr;  // natural alignment is not needed
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  [[nodiscard]] std::int64_t count() const;  // product of the shape
};

// target[i] = element begin + i, for begin + count <= tensor.count(); any float type becomes float
// or double, rounded once where it is narrower, or bf16, rounded from float. The tensor's dtype
// must be a float.
template <typename T>
void read_elements(const Tensor& tensor, std::int64_t begin, std::int64_t count, T* target);

// What stands for the bits of elements [begin, begin + count) of an array of `element_bytes`-wide
// elements; `data` points at element `begin`. The fingerprint of an array is the sum (modulo 2^64)
// of the fingerprints of any parts it is cut into, so ranks with slices of it can add theirs up.
// It finds accidents, not attacks: one changed bit always changes it.
[[nodiscard]] std::uint64_t fingerprint(const void* data, std::size_t element_bytes,
                                        std::int64_t begin, std::int64_t count);

}  // namespace sinew::model
