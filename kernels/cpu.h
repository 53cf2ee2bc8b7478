// The processor this program runs on: which instruction sets it and its operating system offer, and
// its cache sizes. Kernels choose their version and their blocking from it at run time, so one
// binary runs anywhere. Never reads the environment. Thread-safe: detected once, then constant.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace sinew::kernels {

// Instruction sets that have their own kernel files, plain to fast; each includes the ones before
// it.
enum class Isa : std::uint8_t {
  kPortable,    // what every x86-64 has
  kAvx2,        // AVX2, FMA, F16C                     files *_avx2.cc
  kAvx512,      // AVX-512 F, BW, VL, DQ               files *_avx512.cc
  kAvx512Bf16,  // and the bf16 dot product            files *_avx512bf16.cc
};

inline constexpr std::array<Isa, 4> kIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512,
                                             Isa::kAvx512Bf16};

struct Cpu {
  Isa best = Isa::kPortable;
  // Bytes of data cache one core can count on: its own first and second level, and the shared third
  // level.
  std::int64_t l1_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t l3_bytes = 0;
};

[[nodiscard]] const Cpu& cpu();

[[nodiscard]] constexpr bool supports(const Cpu& processor, Isa isa) {
  return static_cast<int>(isa) <= static_cast<int>(processor.best);
}

// "portable", "avx2", "avx512", "avx512bf16".
[[nodiscard]] std::string_view name_of(Isa isa);

}  // namespace sinew::kernels
