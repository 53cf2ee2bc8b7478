// Included by every x_simd.cc, which Highway compiles once per instruction set: AVX2 and AVX-512 on
// x86-64, the architecture's own vectors elsewhere. Where Highway's static target is only its
// emulation, the body is left out (SINEW_SIMD_BODY is 0): the plain version serves such processors.
// No include guard: the file takes part in Highway's repeated inclusion.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif

#include "hwy/foreach_target.h"
// foreach_target.h must come before highway.h.
#include "hwy/highway.h"

#undef SINEW_SIMD_BODY
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define SINEW_SIMD_BODY 0
#else
#define SINEW_SIMD_BODY 1
#endif

// SINEW_SIMD_VERSION(isa, symbol): the address of `symbol` as compiled for `isa`, or null when this
// build has no such code. Usable in the HWY_ONCE section.
#ifndef SINEW_SIMD_VERSION
#if HWY_TARGETS & HWY_AVX2
#define SINEW_SIMD_AVX2(symbol) (&N_AVX2::symbol)
#else
#define SINEW_SIMD_AVX2(symbol) nullptr
#endif
#if HWY_TARGETS & HWY_AVX3
#define SINEW_SIMD_AVX512(symbol) (&N_AVX3::symbol)
#else
#define SINEW_SIMD_AVX512(symbol) nullptr
#endif
#if HWY_STATIC_TARGET == HWY_SCALAR || HWY_STATIC_TARGET == HWY_EMU128
#define SINEW_SIMD_STATIC(symbol) nullptr
#else
#define SINEW_SIMD_STATIC(symbol) (&HWY_STATIC_DISPATCH(symbol))
#endif
#define SINEW_SIMD_VERSION(isa, symbol)                  \
  ((isa) == Isa::kAvx2       ? SINEW_SIMD_AVX2(symbol)   \
   : (isa) == Isa::kAvx512   ? SINEW_SIMD_AVX512(symbol) \
   : (isa) == Isa::kPortable ? SINEW_SIMD_STATIC(symbol) \
                             : nullptr)
#endif
