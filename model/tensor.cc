#include "model/tensor.h"

#include <cstring>

#include "kernels/element.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

template <typename Source, typename T>
void convert(const std::byte* source, std::int64_t count, T* target) {
  for (std::int64_t i = 0; i < count; ++i) {
    Source value;
    std::memcpy(&value, source + static_cast<std::size_t>(i) * sizeof(Source), sizeof(Source));
    using Wide = kernels::Wide<T>;
    target[i] = kernels::narrow<T>(static_cast<Wide>(kernels::widen(value)));
  }
}

// A bijection of 64-bit words whose every output bit depends on every input bit. Steele, Lea and
// Flood, Fast splittable pseudorandom number generators, OOPSLA 2014 (the finaliser of SplitMix64).
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}

}  // namespace

std::int64_t Tensor::count() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

template <typename T>
void read_elements(const Tensor& tensor, std::int64_t begin, std::int64_t count, T* target) {
  CHECK(info(tensor.dtype).is_float);
  CHECK_GE(begin, 0);
  CHECK_LE(begin + count, tensor.count());
  const std::byte* source = tensor.data + static_cast<std::size_t>(begin) * size_of(tensor.dtype);
  visit(tensor.dtype, [&](auto zero) { convert<decltype(zero)>(source, count, target); });
}

template void read_elements<float>(const Tensor&, std::int64_t, std::int64_t, float*);
template void read_elements<bf16>(const Tensor&, std::int64_t, std::int64_t, bf16*);
template void read_elements<double>(const Tensor&, std::int64_t, std::int64_t, double*);

std::uint64_t fingerprint(const void* data, std::size_t element_bytes, std::int64_t begin,
                          std::int64_t count) {
  CHECK_LE(element_bytes, sizeof(std::uint64_t));
  const auto* bytes = static_cast<const std::byte*>(data);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes + static_cast<std::size_t>(i) * element_bytes, element_bytes);
    // For a fixed index a bijection of the bits, so that a change of one element cannot cancel.
    sum += mix(bits + mix(static_cast<std::uint64_t>(begin + i)));
  }
  return sum;
}

}  // namespace sinew::model
