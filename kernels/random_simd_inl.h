// Philox in vectors: the 64 words of one block of random.h at a time. Internal to x_simd.cc files.
#if defined(SINEW_KERNELS_RANDOM_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_RANDOM_SIMD_INL_H
#undef SINEW_KERNELS_RANDOM_SIMD_INL_H
#else
#define SINEW_KERNELS_RANDOM_SIMD_INL_H
#endif

#include <cstdint>

#include "kernels/random.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

using WordTag = hn::ScalableTag<std::uint32_t>;
using WordVec = hn::Vec<WordTag>;

// The 64-bit products of all lanes of x with one factor, as their low and high halves.
struct Products {
  WordVec low;
  WordVec high;
};
HWY_INLINE Products multiply(WordVec x, std::uint32_t factor) {
  const WordTag d;
  const auto f = hn::Set(d, factor);
  const auto even = hn::BitCast(d, hn::MulEven(x, f));
  const hn::Repartition<std::uint64_t, WordTag> d64;
  const auto odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x)));
  const auto odd = hn::BitCast(d, hn::MulEven(odd_lanes, f));
  // even holds low, high of lanes 0, 2, ...; odd those of lanes 1, 3, ...
  const auto odd_low_up = hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(d64, odd)));
  const auto even_high_down = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, even)));
  return {hn::OddEven(odd_low_up, even), hn::OddEven(odd, even_high_down)};
}

// Words of block `block` of the stream, in element order.
HWY_INLINE void random_block(const RandomStream& random, std::int64_t block, std::uint32_t* words) {
  const WordTag d;
  constexpr std::size_t kLanes = hn::MaxLanes(WordTag());
  const Philox philox(random.seed, random.purpose);
  for (std::size_t part = 0; part < 16; part += kLanes) {
    const auto counter = static_cast<std::uint64_t>(block) * 16 + part;
    // The low half of a block's 16 counters does not carry: the first is a multiple of 16.
    auto c0 = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<std::uint32_t>(counter)));
    auto c1 = hn::Set(d, static_cast<std::uint32_t>(counter >> 32));
    auto c2 = hn::Set(d, static_cast<std::uint32_t>(random.stream));
    auto c3 = hn::Set(d, static_cast<std::uint32_t>(random.stream >> 32));
    std::uint32_t k0 = philox.key[0];
    std::uint32_t k1 = philox.key[1];
    for (int round = 0; round < 10; ++round) {
      const Products a = multiply(c0, 0xD2511F53U);
      const Products b = multiply(c2, 0xCD9E8D57U);
      c0 = hn::Xor(hn::Xor(b.high, c1), hn::Set(d, k0));
      c2 = hn::Xor(hn::Xor(a.high, c3), hn::Set(d, k1));
      c1 = b.low;
      c3 = a.low;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    hn::StoreU(c0, d, words + part);
    hn::StoreU(c1, d, words + 16 + part);
    hn::StoreU(c2, d, words + 32 + part);
    hn::StoreU(c3, d, words + 48 + part);
  }
}

// Calls body(i, count, words) on pieces that cover elements [0, count) of a range that starts at
// global index `first`: words[0, piece) are those of elements i, i + 1, ...
template <class Body>
HWY_INLINE void for_each_random_piece(const RandomStream& random, std::int64_t first,
                                      std::int64_t count, const Body& body) {
  HWY_ALIGN std::uint32_t words[kRandomBlock];
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t place = (first + i) % kRandomBlock;
    const std::int64_t piece = kRandomBlock - place < count - i ? kRandomBlock - place : count - i;
    random_block(random, (first + i) / kRandomBlock, words);
    body(i, piece, words + place);
    i += piece;
  }
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
