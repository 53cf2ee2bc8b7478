#include "bench/kernels/roofline.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "kernels/cpu.h"
#include "sched/base/units.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sinew::bench {
namespace {

using kernels::cpu;
using kernels::Isa;
using kernels::supports;

double seconds_of(auto&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Bytes = std::unique_ptr<char, Free>;

Bytes allocate(std::int64_t size_bytes) {
  constexpr std::int64_t kHugePage = 2 << 20;
  const auto rounded =
      static_cast<std::size_t>((size_bytes + kHugePage - 1) / kHugePage * kHugePage);
  Bytes bytes(static_cast<char*>(std::aligned_alloc(kHugePage, rounded)));
  // A hint; where the system does not follow it, ordinary pages are measured.
  (void)madvise(bytes.get(), rounded, MADV_HUGEPAGE);
  std::memset(bytes.get(), 1, rounded);  // so that every page is there before it is timed
  return bytes;
}

void copy_plain(char* to, const char* from, std::int64_t size) {
  std::memcpy(to, from, static_cast<std::size_t>(size));
}

#if defined(__x86_64__)
__attribute__((target("avx"))) void copy_stores(char* to, const char* from, std::int64_t size) {
  for (std::int64_t i = 0; i < size; i += 128) {
    for (std::int64_t j = i; j < i + 128; j += 32) {
      _mm256_store_ps(reinterpret_cast<float*>(to + j),
                      _mm256_load_ps(reinterpret_cast<const float*>(from + j)));
    }
  }
}

__attribute__((target("avx"))) void copy_streaming(char* to, const char* from, std::int64_t size) {
  for (std::int64_t i = 0; i < size; i += 128) {
    for (std::int64_t j = i; j < i + 128; j += 32) {
      _mm256_stream_ps(reinterpret_cast<float*>(to + j),
                       _mm256_load_ps(reinterpret_cast<const float*>(from + j)));
    }
  }
  _mm_sfence();
}

__attribute__((target("avx"))) void fill_stores(char* to, std::int64_t size) {
  const __m256 value = _mm256_set1_ps(1);
  for (std::int64_t i = 0; i < size; i += 128)
    for (std::int64_t j = i; j < i + 128; j += 32)
      _mm256_store_ps(reinterpret_cast<float*>(to + j), value);
}

__attribute__((target("avx"))) void fill_streaming(char* to, std::int64_t size) {
  const __m256 value = _mm256_set1_ps(1);
  for (std::int64_t i = 0; i < size; i += 128)
    for (std::int64_t j = i; j < i + 128; j += 32)
      _mm256_stream_ps(reinterpret_cast<float*>(to + j), value);
  _mm_sfence();
}

__attribute__((target("avx"))) void read_all(const char* from, std::int64_t size) {
  __m256 sums[8] = {};
  for (std::int64_t i = 0; i < size; i += 256) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const auto* line = reinterpret_cast<const float*>(from + i + std::int64_t{32} * j);
      sums[j] = _mm256_add_ps(sums[j], _mm256_load_ps(line));
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) asm volatile("" : : "x"(sums[j]));
}
#else
void read_all(const char* from, std::int64_t size) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < size; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, from + i, 8);
    sum += word;
  }
  asm volatile("" : : "r"(sum));
}
#endif

void fill_plain(char* to, std::int64_t size) { std::memset(to, 1, static_cast<std::size_t>(size)); }

double measure_copy(std::int64_t footprint) {
  const std::int64_t size = std::max<std::int64_t>(footprint / 2 / 128 * 128, 128);
  // One block, the target displaced by a few lines, so that the two do not meet in the same cache
  // set.
  const Bytes block = allocate(2 * size + 4096);
  const char* from = block.get();
  char* to = block.get() + size + 17 * 64;
  const auto repetitions = static_cast<int>(std::clamp<std::int64_t>((32 << 20) / size, 1, 100000));
  double best = 1e30;
  using Copy = void (*)(char*, const char*, std::int64_t);
  std::array<Copy, 3> copies = {copy_plain, copy_plain, copy_plain};
#if defined(__x86_64__)
  if (supports(cpu(), Isa::kAvx2)) copies = {copy_plain, copy_stores, copy_streaming};
#endif
  for (const Copy copy : copies) {
    for (int trial = 0; trial < 7; ++trial) {
      best = std::min(best, seconds_of([&] {
                        for (int r = 0; r < repetitions; ++r) copy(to, from, size);
                      }));
    }
  }
  return 2.0 * static_cast<double>(size) * repetitions / best;
}

double measure_read(std::int64_t size) {
  const Bytes block = allocate(size);
  const auto repetitions = static_cast<int>(std::clamp<std::int64_t>((32 << 20) / size, 1, 100000));
  double best = 1e30;
  for (int trial = 0; trial < 7; ++trial) {
    best = std::min(best, seconds_of([&] {
                      for (int r = 0; r < repetitions; ++r) read_all(block.get(), size);
                    }));
  }
  return static_cast<double>(size) * repetitions / best;
}

double measure_write(std::int64_t size) {
  const Bytes block = allocate(size);
  const auto repetitions = static_cast<int>(std::clamp<std::int64_t>((32 << 20) / size, 1, 100000));
  double best = 1e30;
  using Fill = void (*)(char*, std::int64_t);
  std::array<Fill, 3> fills = {fill_plain, fill_plain, fill_plain};
#if defined(__x86_64__)
  if (supports(cpu(), Isa::kAvx2)) fills = {fill_plain, fill_stores, fill_streaming};
#endif
  for (const Fill fill : fills) {
    for (int trial = 0; trial < 7; ++trial) {
      best = std::min(best, seconds_of([&] {
                        for (int r = 0; r < repetitions; ++r) fill(block.get(), size);
                      }));
    }
  }
  return static_cast<double>(size) * repetitions / best;
}

double at_footprint(std::map<std::int64_t, double>& measured, double (*measure)(std::int64_t),
                    std::int64_t footprint_bytes) {
  const auto rounded = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(footprint_bytes, 4096))));
  const auto [row, is_new] = measured.try_emplace(rounded, 0.0);
  if (is_new) row->second = measure(rounded);
  return row->second;
}

// Each loop below keeps enough independent accumulators in flight to cover the latency of the unit
// (4 or 5 cycles, two units) and returns something the compiler cannot know.
constexpr int kRounds = 2'000'000;

#if defined(__x86_64__)
#define SINEW_PEAK_LOOP(Vector, zero, step)                      \
  Vector accumulators[12];                                       \
  for (Vector & one : accumulators) one = zero;                  \
  for (int round = 0; round < kRounds; ++round) {                \
    _Pragma("GCC unroll 12") for (Vector & one : accumulators) { \
      one = step;                                                \
      asm volatile("" : "+v"(one));                              \
    }                                                            \
  }

__attribute__((target("avx2,fma"))) void fma_f32_avx2() {
  const __m256 x = _mm256_set1_ps(0.5F);
  SINEW_PEAK_LOOP(__m256, x, _mm256_fmadd_ps(one, x, x))
}
__attribute__((target("avx2,fma"))) void fma_f64_avx2() {
  const __m256d x = _mm256_set1_pd(0.5);
  SINEW_PEAK_LOOP(__m256d, x, _mm256_fmadd_pd(one, x, x))
}
__attribute__((target("avx512f"))) void fma_f32_avx512() {
  const __m512 x = _mm512_set1_ps(0.5F);
  SINEW_PEAK_LOOP(__m512, x, _mm512_fmadd_ps(one, x, x))
}
__attribute__((target("avx512f"))) void fma_f64_avx512() {
  const __m512d x = _mm512_set1_pd(0.5);
  SINEW_PEAK_LOOP(__m512d, x, _mm512_fmadd_pd(one, x, x))
}
__attribute__((target("avx512f,avx512bf16"))) void dot_bf16_avx512() {
  const __m512 x = _mm512_set1_ps(0.5F);
  const __m512bh pair = _mm512_cvtne2ps_pbh(x, x);
  SINEW_PEAK_LOOP(__m512, x, _mm512_dpbf16_ps(one, pair, pair))
}
#undef SINEW_PEAK_LOOP
#endif

// This thread's own processor time: a loop of milliseconds is often interrupted on a shared
// machine.
double processor_seconds_of(void (*loop)()) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double begin = now();
  loop();
  return now() - begin;
}

double flops_of(void (*loop)(), int flops_per_vector) {
  double best = 1e30;
  for (int trial = 0; trial < 5; ++trial) best = std::min(best, processor_seconds_of(loop));
  return 12.0 * kRounds * flops_per_vector / best;
}

double measure_peak(Arithmetic arithmetic) {
#if defined(__x86_64__)
  const bool wide = supports(cpu(), Isa::kAvx512);
  if (!supports(cpu(), Isa::kAvx2)) return 0;
  switch (arithmetic) {
    case Arithmetic::kF32:
      return wide ? flops_of(fma_f32_avx512, 32) : flops_of(fma_f32_avx2, 16);
    case Arithmetic::kF64:
      return wide ? flops_of(fma_f64_avx512, 16) : flops_of(fma_f64_avx2, 8);
    case Arithmetic::kBf16Dot:
      return supports(cpu(), Isa::kAvx512Bf16) ? flops_of(dot_bf16_avx512, 64) : 0;
  }
#endif
  (void)arithmetic;
  return 0;
}

}  // namespace

double copy_bytes_per_second(std::int64_t footprint_bytes) {
  static std::map<std::int64_t, double> measured;
  return at_footprint(measured, measure_copy, footprint_bytes);
}

double read_bytes_per_second(std::int64_t footprint_bytes) {
  static std::map<std::int64_t, double> measured;
  return at_footprint(measured, measure_read, footprint_bytes);
}

double write_bytes_per_second(std::int64_t footprint_bytes) {
  static std::map<std::int64_t, double> measured;
  return at_footprint(measured, measure_write, footprint_bytes);
}

double peak_flops(Arithmetic arithmetic) {
  static std::map<Arithmetic, double> measured;
  const auto [row, is_new] = measured.try_emplace(arithmetic, 0.0);
  if (is_new) row->second = measure_peak(arithmetic);
  return row->second;
}

std::string describe_roofline() {
  const auto& processor = cpu();
  const std::int64_t beyond = 4 * processor.l3_bytes;
  std::string text =
      fmt::format("isa {}, caches {} {} {}; copy | read | write GB/s", name_of(processor.best),
                  format_bytes(processor.l1_bytes), format_bytes(processor.l2_bytes),
                  format_bytes(processor.l3_bytes));
  for (const std::int64_t footprint :
       {processor.l1_bytes / 2, processor.l2_bytes / 2, processor.l3_bytes / 4, beyond}) {
    text +=
        fmt::format(", {} {:.1f} | {:.1f} | {:.1f}", format_bytes(footprint),
                    copy_bytes_per_second(footprint) / 1e9, read_bytes_per_second(footprint) / 1e9,
                    write_bytes_per_second(footprint) / 1e9);
  }
  return text + fmt::format("; peak GFLOP/s f32 {:.1f}, f64 {:.1f}, bf16 dot {:.1f}",
                            peak_flops(Arithmetic::kF32) / 1e9, peak_flops(Arithmetic::kF64) / 1e9,
                            peak_flops(Arithmetic::kBf16Dot) / 1e9);
}

}  // namespace sinew::bench
