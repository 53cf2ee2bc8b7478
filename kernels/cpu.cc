#include "kernels/cpu.h"

#include <unistd.h>

#include <algorithm>

namespace sinew::kernels {
namespace {

// The compiler's run-time support asks CPUID and, through XGETBV, whether the operating system
// saves the wide registers; the second half is what a test of CPUID bits alone forgets.
Isa detect_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return Isa::kPortable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return Isa::kAvx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512;
#else
  return Isa::kPortable;
#endif
}

// A container or virtual machine may report 0; then the smallest cache any AVX2 server has.
std::int64_t cache_bytes(int name, std::int64_t least) {
  return std::max<std::int64_t>(sysconf(name), least);
}

Cpu detect() {
  return {.best = detect_isa(),
          .l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10),
          .l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 256 << 10),
          .l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 2 << 20)};
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
