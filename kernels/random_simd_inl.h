// Philox in vectors: the bits of a few blocks of random.h at a time. Internal to x_simd.cc files.
//
// A counter's four words lie in the low halves of 64-bit lanes. The multiplication reads low halves
// only, so the upper ones may hold anything: a round is two multiplications, two shifts that bring
// down their upper words and two three-way exclusive ors, and no word changes its lane. 120
// operations for a block in 512-bit vectors: at two a cycle 60 cycles, 0.47 an element.
#if defined(SINEW_KERNELS_RANDOM_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_RANDOM_SIMD_INL_H
#undef SINEW_KERNELS_RANDOM_SIMD_INL_H
#else
#define SINEW_KERNELS_RANDOM_SIMD_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/random.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

using WordTag = hn::ScalableTag<std::uint32_t>;
using WordVec = hn::Vec<WordTag>;
using LaneTag = hn::ScalableTag<std::uint64_t>;
using LaneVec = hn::Vec<LaneTag>;

HWY_INLINE LaneVec multiply_low(LaneVec x, std::uint32_t factor) {
  const WordTag d;
  return hn::MulEven(hn::BitCast(d, x), hn::Set(d, factor));
}

// A stream with its keys of each round.
class RandomBlocks {
 public:
  HWY_INLINE explicit RandomBlocks(const RandomStream& random) : stream_(random.stream) {
    auto key = Philox(random.seed, random.purpose).key;
    for (int round = 0; round < kRounds; ++round) {
      keys_[round][0] = key[0];
      keys_[round][1] = key[1];
      key[0] += 0x9E3779B9U;
      key[1] += 0xBB67AE85U;
    }
  }

  // Blocks drawn together: as many as keep their counters in the registers. A round is a chain of
  // five cycles and more, so that one block's two vectors of counters would wait for each other.
  static constexpr std::int64_t kTogether = HWY_TARGET == HWY_AVX3 ? 2 : 1;
  static constexpr std::int64_t kElements = kTogether * kRandomBlock;

  // The bits of the blocks from `block`, a multiple of kTogether, in element order.
  HWY_INLINE void draw(std::int64_t block, std::uint16_t* bits) const {
    constexpr int kVectors =
        static_cast<int>(kTogether * kBlockCounters / std::int64_t{hn::MaxLanes(LaneTag())});
    for_rows<(kVectors + kMostGroups - 1) / kMostGroups>([&](auto part) SINEW_LAMBDA {
      draw_groups<part * kMostGroups, std::min(kMostGroups, kVectors)>(block, bits);
    });
  }

 private:
  // Vectors of counters at work at once: four words of each in registers. With AVX2's 16 registers
  // four vectors' words would pass from round to round through memory.
  static constexpr int kMostGroups = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

  template <int first_group, int kGroups>
  HWY_INLINE void draw_groups(std::int64_t block, std::uint16_t* bits) const {
    const LaneTag d;
    constexpr int kLanes = static_cast<int>(hn::MaxLanes(LaneTag()));
    const auto counter = static_cast<std::uint64_t>(block * kBlockCounters);
    LaneVec c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
    for_rows<kGroups>([&](auto g) SINEW_LAMBDA {
      // The low half does not carry within the blocks: their first counter is a multiple of theirs.
      c0[g] = hn::Add(hn::Iota(d, (first_group + g) * kLanes), hn::Set(d, counter));
      c1[g] = hn::Set(d, counter >> 32);
      c2[g] = hn::Set(d, stream_);
      c3[g] = hn::Set(d, stream_ >> 32);
    });
    for (int round = 0; round + 1 < kRounds; ++round) {
      const auto key0 = hn::Set(d, keys_[round][0]);
      const auto key1 = hn::Set(d, keys_[round][1]);
      for_rows<kGroups>([&](auto g) SINEW_LAMBDA {
        const auto a = multiply_low(c0[g], kFactor0);
        const auto b = multiply_low(c2[g], kFactor1);
        c0[g] = hn::Xor3(hn::ShiftRight<32>(b), c1[g], key0);
        c2[g] = hn::Xor3(hn::ShiftRight<32>(a), c3[g], key1);
        c1[g] = b;
        c3[g] = a;
      });
    }
    // The last products hold words 1 and 3 where they are wanted; words 0 and 2 are completed
    // above.
    const auto key0 = hn::Set(d, keys_[kRounds - 1][0] << 32);
    const auto key1 = hn::Set(d, keys_[kRounds - 1][1] << 32);
    for_rows<kGroups>([&](auto g) SINEW_LAMBDA {
      const auto a = multiply_low(c0[g], kFactor0);
      const auto b = multiply_low(c2[g], kFactor1);
      constexpr int kFirst = (first_group + g) * kLanes;
      auto* to = reinterpret_cast<std::uint64_t*>(bits) + kFirst / 8 * 16 + kFirst % 8;
      hn::StoreU(hn::Xor3(b, hn::ShiftLeft<32>(c1[g]), key0), d, to);
      hn::StoreU(hn::Xor3(a, hn::ShiftLeft<32>(c3[g]), key1), d, to + 8);
    });
  }

  static constexpr int kRounds = 10;
  static constexpr std::uint32_t kFactor0 = 0xD2511F53U;
  static constexpr std::uint32_t kFactor1 = 0xCD9E8D57U;
  std::uint64_t stream_;
  std::uint64_t keys_[kRounds][2];
};

// The bits of a pack's elements, each in the 32-bit lane of its element.
template <std::size_t vectors>
struct BitsPack {
  WordVec v[vectors];
};
template <typename T>
HWY_INLINE BitsPack<kPackVectors<T>> load_bits(const std::uint16_t* bits) {
  const WordTag d;
  if constexpr (kPackVectors<T> == 1) {
    return {{hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint16_t, WordTag>(), bits))}};
  } else {
    const auto both = hn::BitCast(d, hn::LoadU(hn::ScalableTag<std::uint16_t>(), bits));
    return {{hn::And(both, hn::Set(d, 0xffffU)), hn::ShiftRight<16>(both)}};
  }
}

// Calls body(i, count, bits) on pieces that cover elements [0, count) of a range that starts at
// global index `first`: bits[0, piece) are those of elements i, i + 1, ...; a pack may be loaded at
// any of them.
template <class Body>
HWY_INLINE void for_each_random_piece(const RandomStream& random, std::int64_t first,
                                      std::int64_t count, const Body& body) {
  const RandomBlocks blocks(random);
  constexpr std::int64_t kElements = RandomBlocks::kElements;
  HWY_ALIGN std::uint16_t bits[kElements + kPackElements<bf16>] = {};
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t place = (first + i) % kElements;
    const std::int64_t piece = kElements - place < count - i ? kElements - place : count - i;
    blocks.draw((first + i) / kElements * RandomBlocks::kTogether, bits);
    body(i, piece, bits + place);
    i += piece;
  }
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
