// Included by every x_simd.cc, which Highway compiles once per instruction set: AVX2, AVX-512 and,
// where the file defines HWY_WANT_AVX3_DL first, AVX512-BF16, whose only use is to round bf16.
// The body is left out (SINEW_SIMD_BODY is 0) for any other target, such as Highway's emulation:
// the plain version serves such processors. No include guard: the file takes part in Highway's
// repeated inclusion.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif

#include "hwy/foreach_target.h"
// foreach_target.h must come before highway.h.
#include "hwy/highway.h"

#undef SINEW_SIMD_BODY
#undef SINEW_SIMD_IS_BF16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET <= HWY_AVX3
#define SINEW_SIMD_BODY 1
#else
#define SINEW_SIMD_BODY 0
#endif
#define SINEW_SIMD_IS_BF16 (HWY_TARGET < HWY_AVX3)

// SINEW_SIMD_VERSION(isa, symbol): the address of `symbol` as compiled for `isa`, or null when this
// build has no such code. For the HWY_ONCE section.
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
#define SINEW_SIMD_VERSION(isa, symbol)                \
  ((isa) == Isa::kAvx2     ? SINEW_SIMD_AVX2(symbol)   \
   : (isa) == Isa::kAvx512 ? SINEW_SIMD_AVX512(symbol) \
                           : nullptr)
// The same where the symbol is also compiled for AVX512-BF16.
#if HWY_TARGETS & HWY_AVX3_DL
#define SINEW_SIMD_BF16_VERSION(isa, symbol) \
  ((isa) == Isa::kAvx512Bf16 ? (&N_AVX3_DL::symbol) : SINEW_SIMD_VERSION(isa, symbol))
#else
#define SINEW_SIMD_BF16_VERSION(isa, symbol) SINEW_SIMD_VERSION(isa, symbol)
#endif
#endif
