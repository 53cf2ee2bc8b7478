#include "kernels/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <unistd.h>

#include <algorithm>

namespace sinew::kernels {
namespace {

#if defined(__x86_64__)
// Not every compiler's run-time support knows this one. Its registers are those of AVX.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// The compiler's run-time support asks CPUID and, through XGETBV, whether the operating system
// saves the wide registers; the second half is what a test of CPUID bits alone forgets.
Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
    return Isa::kPortable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return Isa::kAvx2;
  // Every processor with the bf16 instructions has the others, but for Cooper Lake, which counts as
  // AVX-512: Highway's target is made of all of them.
  const bool has_bf16 =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni") &&
      __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq") &&
      __builtin_cpu_supports("gfni") && __builtin_cpu_supports("vpclmulqdq");
  return has_bf16 ? Isa::kAvx512Bf16 : Isa::kAvx512;
#else
  return Isa::kPortable;
#endif
}

// The size of the data or unified cache of `level` (1, 2, 3), 0 when unknown. From the processor's
// own list (leaf 4, or 0x8000001D on AMD, same layout): the C library derives the third level of
// some AMD processors from their topology and reports ten times too much in a virtual machine.
std::int64_t reported_cache_bytes(unsigned level) {
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  for (const unsigned leaf : {4U, 0x8000001DU}) {
    if (__get_cpuid_max(leaf & 0x80000000U, nullptr) < leaf) continue;
    for (unsigned index = 0; index < 16; ++index) {
      __cpuid_count(leaf, index, eax, ebx, ecx, edx);
      constexpr unsigned kInstructions = 2;
      const unsigned kind = eax & 0x1fU;
      if (kind == 0) break;
      if (kind == kInstructions || ((eax >> 5) & 7U) != level) continue;
      const std::int64_t line = (ebx & 0xfffU) + 1;
      const std::int64_t partitions = ((ebx >> 12) & 0x3ffU) + 1;
      const std::int64_t ways = (ebx >> 22) + 1;
      return line * partitions * ways * (std::int64_t{ecx} + 1);
    }
  }
  return 0;
#else
  constexpr int kNames[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  return sysconf(kNames[level - 1]);
#endif
}

// A virtual machine may report nothing; then the smallest cache any AVX2 server has.
std::int64_t cache_bytes(unsigned level, std::int64_t least) {
  return std::max(reported_cache_bytes(level), least);
}

Cpu detect() {
  return {.best = detect_isa(),
          .l1_bytes = cache_bytes(1, 32 << 10),
          .l2_bytes = cache_bytes(2, 256 << 10),
          .l3_bytes = cache_bytes(3, 2 << 20)};
}

}  // namespace

const Cpu& cpu() {
  static const Cpu processor = detect();
  return processor;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  __builtin_unreachable();
}

}  // namespace sinew::kernels
