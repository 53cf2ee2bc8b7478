// What the benchmarks of memory-bound kernels share: arrays that do not meet in one cache set, and
// the report of bytes per second beside the fraction of this machine's copy at the same footprint.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/element.h"
#include "kernels/registry.h"

namespace sinew::bench {

// `count` arrays of `size_bytes` in one block, each 64-byte aligned and displaced by a different
// number of lines.
class Arrays {
 public:
  Arrays(int count, std::int64_t size_bytes);
  template <typename T>
  [[nodiscard]] T* get(int index) const {
    return reinterpret_cast<T*>(block_.get() + index * stride_bytes_);
  }

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  std::int64_t stride_bytes_;
  std::unique_ptr<char, Free> block_;
};

// Fills with uniform values in [-2, 2), rounded to T.
template <typename T>
void fill(T* data, std::int64_t count) {
  std::uint32_t state = 12345;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    const auto value = static_cast<float>(state >> 8) * 0x1p-22F - 2.0F;
    data[i] = kernels::narrow<T>(static_cast<kernels::Wide<T>>(value));
  }
}

// What one call must move at least, and the memory it ranges over.
struct Traffic {
  double read_bytes;
  double written_bytes;
  std::int64_t footprint_bytes;
};

// Counters: GB/s of read plus written bytes; of_copy, its fraction of a copy's at this footprint;
// of_bound, the fraction of the shortest time that the copy's, reading and writing rates allow;
// of_arithmetic, the fraction of the time that the same kernel takes a byte where its arrays lie in
// the first level cache, if such a row has run before: near 1 the kernel computes as fast as it can
// and memory is not its bound.
void report(benchmark::State& state, const Traffic& traffic, double seconds_per_call);

// To be called with the name of a row before it runs. Rows that differ in one component, a size,
// are the same kernel.
void begin_row(const std::string& name);

// Calls per timed block, so that the clock's own cost does not show.
[[nodiscard]] int calls_per_block(const Traffic& traffic);

// Times body() in blocks and reports the fastest block, as the roofline reports its fastest trial:
// on a shared machine the minimum is what repeats.
template <typename Body>
void measure(benchmark::State& state, const Traffic& traffic, const Body& body) {
  const int calls = calls_per_block(traffic);
  double best = 1e30;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) {
      body();
      benchmark::ClobberMemory();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::min(best, seconds.count() / calls);
    state.SetIterationTime(seconds.count() / calls);
  }
  report(state, traffic, best);
}

// Registers a benchmark of a fixed number of blocks, fewer for the slower versions.
template <typename Run>
void add_benchmark(const std::string& name, Run run) {
  const int blocks = name.starts_with("ladder/") ? 5 : 21;
  benchmark::RegisterBenchmark(name.c_str(),
                               [name, run](benchmark::State& state) {
                                 begin_row(name);
                                 run(state);
                               })
      ->Iterations(blocks)
      ->UseManualTime();
}

// The name of a version's row: the slower versions stand together, under ladder/.
inline std::string row_name(const std::string& name, std::string_view version, bool is_best) {
  return std::string(is_best ? "" : "ladder/") + name + "/" + std::string(version);
}

// Registers `run` for each available version of an operation: run(state, functions).
template <typename Functions, typename Run>
void add_versions(const std::string& name, Run run) {
  const auto versions = kernels::versions_of<Functions>();
  for (const auto& version : versions) {
    add_benchmark(row_name(name, version.version, &version == &versions.back()),
                  [f = version.functions, run](benchmark::State& state) { run(state, *f); });
  }
}

template <typename T>
struct Matrices {
  Matrices(int number, std::int64_t rows, std::int64_t columns)
      : count(rows * columns),
        bytes(static_cast<double>(count) * sizeof(T)),
        arrays(number, count * static_cast<std::int64_t>(sizeof(T))) {
    for (int i = 0; i < number; ++i) fill(get(i), count);
  }
  T* get(int i) const { return arrays.get<T>(i); }
  // read and written in units of one matrix.
  [[nodiscard]] Traffic traffic(double read, double written, int number) const {
    return {read * bytes, written * bytes, static_cast<std::int64_t>(number * bytes)};
  }
  std::int64_t count;
  double bytes;
  Arrays arrays;
};

}  // namespace sinew::bench
