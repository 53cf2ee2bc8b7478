// GEMM over the shapes of transformer layers, forward and both backward forms, beside the libraries
// installed here, in the same run. One row is one shape: our version and every library take turns,
// so that a slow moment of the machine meets all of them; each reports its median.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
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

// Ratio to the best library over the rows run so far: what the last row reports.
struct Summary {
  double log_sum = 0;
  double least = 1e30;
  int rows = 0;
};
Summary& summary(int threads) {
  static Summary summaries[2];
  return summaries[threads - 1];
}

void bench_gemm(benchmark::State& state, const GemmShape& s, int threads) {
  const Arrays a(1, s.m * s.k * 4);
  const Arrays b(1, s.k * s.n * 4);
  const Arrays c(1, s.m * s.n * 4);
  fill(a.get<float>(0), s.m * s.k);
  fill(b.get<float>(0), s.k * s.n);
  auto baselines = find_gemm_baselines(threads);
  kernels::ThreadPool pool(threads);
  std::vector<std::function<void()>> runs;
  runs.emplace_back([&] {
    kernels::gemm<float>(s, 1, a.get<float>(0), b.get<float>(0), 0, c.get<float>(0),
                         {.count = threads, .pool = &pool});
  });
  for (auto& baseline : baselines) {
    runs.emplace_back([&] { baseline->run(s, a.get<float>(0), b.get<float>(0), c.get<float>(0)); });
  }
  for (auto& run : runs) run();
  std::vector<std::vector<double>> seconds(runs.size());
  for (auto _ : state) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const double begin = seconds_now(threads);
      runs[i]();
      seconds[i].push_back(seconds_now(threads) - begin);
    }
    state.SetIterationTime(seconds[0].back());
  }
  const double flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const auto rate = [&](std::size_t i) { return flops / median(seconds[i]); };
  state.counters["GFLOP/s"] = rate(0) * 1e-9;
  state.counters["of_peak"] = rate(0) / (peak_flops(Arithmetic::kF32) * threads);
  double best = 0;
  for (std::size_t i = 0; i < baselines.size(); ++i) {
    state.counters[baselines[i]->name()] = rate(i + 1) * 1e-9;
    best = std::max(best, rate(i + 1));
  }
  if (best > 0) {
    const double ratio = rate(0) / best;
    state.counters["to_best"] = ratio;
    Summary& sum = summary(threads);
    sum.log_sum += std::log(ratio);
    sum.least = std::min(sum.least, ratio);
    ++sum.rows;
  }
}

void bench_summary(benchmark::State& state, int threads) {
  for (auto _ : state) state.SetIterationTime(1e-9);
  const Summary& sum = summary(threads);
  state.counters["shapes"] = sum.rows;
  state.counters["to_best_geomean"] = sum.rows > 0 ? std::exp(sum.log_sum / sum.rows) : 0;
  state.counters["to_best_least"] = sum.rows > 0 ? sum.least : 0;
}

// About half a second for each of four libraries at 100 GFLOP/s, at least five turns.
int turns(const GemmShape& s) {
  const double flops =
      2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  return static_cast<int>(std::clamp(0.25e11 / flops, 5.0, 41.0));
}

// Every version alone on one shape: what each instruction set buys.
void register_versions() {
  for (const auto& version : kernels::versions_of<GemmFunctions<float>>()) {
    for (const Pass& pass : kPasses) {
      const GemmShape s = pass.shape(512, kLayers[2]);
      benchmark::RegisterBenchmark(
          fmt::format("gemm_version/f32/{}/{}/{}x{}x{}", version.version, pass.name, s.m, s.n, s.k)
              .c_str(),
          [s, version](benchmark::State& state) {
            const Arrays a(1, s.m * s.k * 4);
            const Arrays b(1, s.k * s.n * 4);
            const Arrays c(1, s.m * s.n * 4);
            std::vector<double> seconds;
            for (auto _ : state) {
              const double begin = seconds_now(1);
              version.functions->run(
                  {.shape = s, .a = a.get<float>(0), .b = b.get<float>(0), .c = c.get<float>(0)},
                  {});
              seconds.push_back(seconds_now(1) - begin);
              state.SetIterationTime(seconds.back());
            }
            const double rate =
                2.0 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k) / median(seconds);
            state.counters["GFLOP/s"] = rate * 1e-9;
            state.counters["of_peak"] = rate / peak_flops(Arithmetic::kF32);
          })
          ->Iterations(5)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

const bool kRegistered = [] {
  for (const int threads : kThreads) {
    for (const Layer& layer : kLayers) {
      for (const std::int64_t tokens : kTokens) {
        for (const Pass& pass : kPasses) {
          const GemmShape s = pass.shape(tokens, layer);
          benchmark::RegisterBenchmark(
              fmt::format("gemm/f32/threads{}/{}/{}/{}/{}x{}x{}", threads, layer.model, layer.name,
                          pass.name, s.m, s.n, s.k)
                  .c_str(),
              [s, threads](benchmark::State& state) { bench_gemm(state, s, threads); })
              ->Iterations(turns(s))
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
    benchmark::RegisterBenchmark(
        fmt::format("gemm/f32/threads{}/summary", threads).c_str(),
        [threads](benchmark::State& state) { bench_summary(state, threads); })
        ->Iterations(1)
        ->UseManualTime();
  }
  register_versions();
  return true;
}();

}  // namespace
}  // namespace sinew::bench
