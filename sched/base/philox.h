// Philox4x32-10: a counter-based random generator. The value at a counter depends on nothing but
// the key and the counter, so weights and masks keyed by *global* index do not depend on how ranks
// split them. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace sinew {

struct Philox {
  std::array<std::uint32_t, 2> key;

  // What a stream of numbers is for. Part of the key: two purposes never share numbers.
  constexpr Philox(std::uint64_t seed, std::uint32_t purpose)
      : key{static_cast<std::uint32_t>(seed) ^ (purpose * 0x9e3779b9U),
            static_cast<std::uint32_t>(seed >> 32) ^ (purpose * 0x85ebca6bU)} {}

  // Four 32-bit words for one 128-bit counter (low, high).
  [[nodiscard]] constexpr std::array<std::uint32_t, 4> words(std::uint64_t low,
                                                             std::uint64_t high = 0) const {
    std::array<std::uint32_t, 4> c = {
        static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
        static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)};
    std::array<std::uint32_t, 2> k = key;
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53U} * c[0];
      const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c[2];
      c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
      k[0] += 0x9E3779B9U;
      k[1] += 0xBB67AE85U;
    }
    return c;
  }

  // Uniform in [0, 1) with 24 bits, for one global index.
  [[nodiscard]] constexpr float uniform(std::uint64_t index, std::uint64_t stream = 0) const {
    return static_cast<float>(words(index, stream)[0] >> 8) * 0x1p-24F;
  }

  // Standard normal by Box and Muller, for one global index; never infinite.
  [[nodiscard]] float normal(std::uint64_t index, std::uint64_t stream = 0) const {
    const auto w = words(index, stream);
    const double u = (static_cast<double>(w[0]) + 1.0) * 0x1p-32;
    const double v = static_cast<double>(w[1]) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
};

}  // namespace sinew
