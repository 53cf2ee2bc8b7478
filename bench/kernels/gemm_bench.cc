// GEMM over the shapes of transformer layers, forward and both backward forms, beside the libraries
// installed here, in the same run. One row is one shape: our version and every library take turns,
// so that a slow moment of the machine meets all of them; each reports its median. to_best: ours to
// f32, B not packed beforehand, over the best library.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "bench/kernels/gemm_baselines.h"
#include "bench/kernels/memory_bound.h"
#include "bench/kernels/processor_time.h"
#include "bench/kernels/roofline.h"
#include "kernels/gemm.h"
#include "kernels/registry.h"

namespace sinew::bench {
namespace {

using kernels::Form;
using kernels::GemmCall;
using kernels::GemmFunctions;
using kernels::GemmShape;

struct Layer {
  const char* model;
  const char* name;
  std::int64_t in;
  std::int64_t out;
};

// GPT-2 124M and 350M (fused qkv, output projection, MLP) and a Llama of 1.2 billion parameters
// (2048 wide, 8 key-value heads of 64, MLP 8192, gate and up fused).
constexpr Layer kLayers[] = {
    {"gpt2-124M", "qkv", 768, 2304},      {"gpt2-124M", "out", 768, 768},
    {"gpt2-124M", "up", 768, 3072},       {"gpt2-124M", "down", 3072, 768},
    {"gpt2-350M", "qkv", 1024, 3072},     {"gpt2-350M", "out", 1024, 1024},
    {"gpt2-350M", "up", 1024, 4096},      {"gpt2-350M", "down", 4096, 1024},
    {"llama-1B", "qkv", 2048, 3072},      {"llama-1B", "out", 2048, 2048},
    {"llama-1B", "gate-up", 2048, 16384}, {"llama-1B", "down", 8192, 2048},
};
constexpr std::int64_t kTokens[] = {256, 512, 1024};
constexpr std::int64_t kTokensOfTwoThreads[] = {512};
constexpr int kThreads[] = {1, 2};

// Weights are stored [in, out]: Y = X W, dX = dY W^T, dW = X^T dY.
struct Pass {
  const char* name;
  GemmShape (*shape)(std::int64_t tokens, const Layer& layer);
};
constexpr Pass kPasses[] = {
    {"forward",
     [](std::int64_t t, const Layer& l) -> GemmShape {
       return {t, l.out, l.in, Form::kPlain, Form::kPlain, l.in, l.out, l.out};
     }},
    {"d_input",
     [](std::int64_t t, const Layer& l) -> GemmShape {
       return {t, l.in, l.out, Form::kPlain, Form::kTransposed, l.out, l.out, l.in};
     }},
    {"d_weight",
     [](std::int64_t t, const Layer& l) -> GemmShape {
       return {l.in, l.out, t, Form::kTransposed, Form::kPlain, l.in, l.out, l.out};
     }},
};

// Over the rows run so far: what the last row reports. The ratio to the best library, and the
// fraction of the peak where no extent of the product is below 1024.
struct GeometricMean {
  void add(double value) {
    log_sum += std::log(value);
    least = std::min(least, value);
    ++rows;
  }
  void report(benchmark::State& state, const std::string& name) const {
    if (rows == 0) return;
    state.counters[name + "_geomean"] = std::exp(log_sum / rows);
    state.counters[name + "_least"] = least;
  }
  double log_sum = 0;
  double least = 1e30;
  int rows = 0;
};
struct Summary {
  GeometricMean to_best;
  GeometricMean of_peak_large;
};
template <typename T>
Summary& summary(int threads) {
  static Summary summaries[2];
  return summaries[threads - 1];
}

template <typename T>
constexpr const char* kTypeName = std::is_same_v<T, bf16>     ? "bf16"
                                  : std::is_same_v<T, double> ? "f64"
                                                              : "f32";

double flops_of(const GemmShape& s) {
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// The operands of one product; C in f32, which is what every library can write.
template <typename T>
struct Operands {
  explicit Operands(const GemmShape& shape)
      : s(shape),
        a_block(1, s.m * s.k * static_cast<std::int64_t>(sizeof(T))),
        b_block(1, s.k * s.n * static_cast<std::int64_t>(sizeof(T))),
        c_block(1, s.m * s.n * static_cast<std::int64_t>(std::max(sizeof(T), sizeof(float)))) {
    fill(a_block.get<T>(0), s.m * s.k);
    fill(b_block.get<T>(0), s.k * s.n);
  }
  [[nodiscard]] const T* a() const { return a_block.get<T>(0); }
  [[nodiscard]] const T* b() const { return b_block.get<T>(0); }
  template <typename Out>
  [[nodiscard]] GemmCall<T, Out> call() const {
    return {.shape = s, .a = a(), .b = b(), .c = c_block.get<Out>(0)};
  }
  void run(GemmBaseline& baseline) const { baseline.run(s, a(), b(), c_block.get<float>(0)); }

  GemmShape s;
  Arrays a_block;
  Arrays b_block;
  Arrays c_block;
};

// Medians of the seconds of each run, which take turns. Of a short one the second call of each turn
// counts: the first finds the caches full of the buffers of whoever ran before it.
std::vector<double> take_turns(benchmark::State& state, int threads,
                               const std::vector<std::function<void()>>& runs) {
  constexpr double kShort_s = 0.02;
  std::vector<std::vector<double>> seconds(runs.size());
  const auto run = [&](std::size_t i) {
    if (threads > 1) wait_until_idle();
    const double begin = seconds_now(threads);
    runs[i]();
    return seconds_now(threads) - begin;
  };
  for (auto _ : state) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      double time = run(i);
      if (time < kShort_s) time = run(i);
      seconds[i].push_back(time);
    }
    state.SetIterationTime(seconds[0].back());
  }
  std::vector<double> medians;
  for (auto& one : seconds) medians.push_back(median(std::move(one)));
  return medians;
}

// Ours to f32; with B packed beforehand, where it is a weight; of bf16, to bf16; then every
// library.
template <typename T>
void bench_gemm(benchmark::State& state, const GemmShape& s, int threads) {
  const Operands<T> operands(s);
  const auto baselines = find_gemm_baselines(threads);
  std::vector<int> cores = first_cores(threads);
  if (static_cast<int>(cores.size()) < threads) cores.clear();
  kernels::ThreadPool pool(threads, cores);
  const kernels::Threads ours{.count = threads, .pool = &pool};
  std::optional<kernels::PackedB<T>> packed;
  std::vector<std::string> names = {"GFLOP/s"};
  std::vector<std::function<void()>> runs = {
      [&] { kernels::gemm(operands.template call<float>(), ours); }};
  const bool is_b_weight = s.a_form == Form::kPlain;
  if (is_b_weight) {
    packed.emplace(s, operands.b(), ours);
    names.emplace_back("packed");
    runs.emplace_back([&] {
      auto call = operands.template call<float>();
      call.packed = &*packed;
      kernels::gemm(call, ours);
    });
  }
  if constexpr (std::is_same_v<T, bf16>) {
    names.emplace_back("to_bf16");
    runs.emplace_back([&] { kernels::gemm(operands.template call<bf16>(), ours); });
  }
  const std::size_t first_baseline = runs.size();
  for (const auto& baseline : baselines) {
    if (std::is_same_v<T, bf16> && !baseline->has_bf16()) continue;
    names.push_back(baseline->name());
    runs.emplace_back([&operands, &baseline] { operands.run(*baseline); });
  }
  const std::vector<double> seconds = take_turns(state, threads, runs);
  const double flops = flops_of(s);
  double best = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    state.counters[names[i]] = flops / seconds[i] * 1e-9;
    if (i >= first_baseline) best = std::max(best, flops / seconds[i]);
  }
  const double of_peak = flops / seconds[0] / (gemm_peak<T>() * threads);
  state.counters["of_peak"] = of_peak;
  Summary& sum = summary<T>(threads);
  constexpr std::int64_t kLarge = 1024;
  if (s.m >= kLarge && s.n >= kLarge && s.k >= kLarge) sum.of_peak_large.add(of_peak);
  if (best == 0) return;
  const double ratio = flops / seconds[0] / best;
  state.counters["to_best"] = ratio;
  sum.to_best.add(ratio);
}

template <typename T>
void bench_summary(benchmark::State& state, int threads) {
  for (auto _ : state) state.SetIterationTime(1e-9);
  const Summary& sum = summary<T>(threads);
  state.counters["shapes"] = sum.to_best.rows;
  sum.to_best.report(state, "to_best");
  sum.of_peak_large.report(state, "of_peak_large");
}

// Some 0.1 s of each run at 100 GFLOP/s; an odd number of turns, so that the median is one of them.
int turns(const GemmShape& s) {
  return static_cast<int>(std::clamp(1e10 / flops_of(s), 3.0, 21.0)) / 2 * 2 + 1;
}

// Every version alone on one shape: what each instruction set buys.
template <typename T>
void register_versions() {
  for (const auto& version : kernels::versions_of<GemmFunctions<T>>()) {
    // The plain version takes a second and more.
    const bool is_slow = version.version == "plain";
    for (const Pass& pass : kPasses) {
      const GemmShape s = pass.shape(256, kLayers[2]);
      benchmark::RegisterBenchmark(fmt::format("ladder/gemm/{}/{}/{}/{}x{}x{}", kTypeName<T>,
                                               version.version, pass.name, s.m, s.n, s.k)
                                       .c_str(),
                                   [s, version](benchmark::State& state) {
                                     const Operands<T> operands(s);
                                     const auto call = operands.template call<T>();
                                     const double seconds = take_turns(
                                         state, 1, {[&] { version.functions->run(call, {}); }})[0];
                                     const double rate = flops_of(s) / seconds;
                                     state.counters["GFLOP/s"] = rate * 1e-9;
                                     state.counters["of_peak"] = rate / gemm_peak<T>();
                                   })
          ->Iterations(is_slow ? 1 : 3)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

template <typename T>
void register_type() {
  for (const int threads : kThreads) {
    const auto all_tokens = threads == 1 ? std::span<const std::int64_t>(kTokens)
                                         : std::span<const std::int64_t>(kTokensOfTwoThreads);
    for (const Layer& layer : kLayers) {
      for (const std::int64_t tokens : all_tokens) {
        for (const Pass& pass : kPasses) {
          const GemmShape s = pass.shape(tokens, layer);
          benchmark::RegisterBenchmark(
              fmt::format("gemm/{}/threads{}/{}/{}/{}/{}x{}x{}", kTypeName<T>, threads, layer.model,
                          layer.name, pass.name, s.m, s.n, s.k)
                  .c_str(),
              [s, threads](benchmark::State& state) { bench_gemm<T>(state, s, threads); })
              ->Iterations(turns(s))
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
    benchmark::RegisterBenchmark(
        fmt::format("gemm/{}/threads{}/summary", kTypeName<T>, threads).c_str(),
        [threads](benchmark::State& state) { bench_summary<T>(state, threads); })
        ->Iterations(1)
        ->UseManualTime();
  }
  register_versions<T>();
}

// Many small products, as a batch and one by one: microseconds each.
template <typename T>
void register_batch(std::int64_t size) {
  benchmark::RegisterBenchmark(
      fmt::format("gemm_batch/{}/{}x{}x{}", kTypeName<T>, size, size, size).c_str(),
      [size](benchmark::State& state) {
        constexpr std::int64_t kCount = 64;
        const GemmShape s{size, size, size, Form::kPlain, Form::kPlain, size, size, size};
        const std::int64_t step = size * size;
        const std::int64_t bytes = kCount * step * 4;
        const Arrays arrays(3, bytes);
        fill(arrays.get<T>(0), kCount * step);
        fill(arrays.get<T>(1), kCount * step);
        const double seconds =
            take_turns(state, 1, {[&] {
                         kernels::gemm_batch<T>(s, kCount, {step, step, step}, 1, arrays.get<T>(0),
                                                arrays.get<T>(1), 0, arrays.get<T>(2));
                       }})[0];
        const double rate = flops_of(s) * kCount / seconds;
        state.counters["GFLOP/s"] = rate * 1e-9;
        state.counters["of_peak"] = rate / gemm_peak<T>();
      })
      ->Iterations(11)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

const bool kRegistered = [] {
  register_type<float>();
  register_type<bf16>();
  register_versions<double>();
  for (const std::int64_t size : {16, 32, 64, 128}) {
    register_batch<float>(size);
    register_batch<bf16>(size);
  }
  return true;
}();

}  // namespace
}  // namespace sinew::bench
