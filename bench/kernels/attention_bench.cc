// Causal attention, forward and backward, in every version. GFLOP/s counts the products that
// causality leaves: T (T + 1) / 2 scores a head, 4 D flops each forward and 10 D backward; of_peak
// is their fraction of the measured peak of multiply-adds. Memory is linear in T by construction:
// see the header.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "bench/kernels/memory_bound.h"
#include "bench/kernels/processor_time.h"
#include "bench/kernels/roofline.h"
#include "kernels/attention.h"
#include "kernels/registry.h"

namespace sinew::bench {
namespace {

using kernels::AttentionFunctions;
using kernels::AttentionShape;
using kernels::HeadView;
using kernels::KernelVersion;

constexpr std::int64_t kTimes[] = {256, 512, 1024, 2048, 4096};

// Twelve heads of 64 (GPT-2 124M), eight of 128; one sequence; q, k, v side by side in one matrix.
struct Problem {
  Problem(std::int64_t time, std::int64_t head_dim)
      : shape{.batch = 1,
              .time = time,
              .heads = head_dim == 64 ? 12 : 8,
              .kv_heads = head_dim == 64 ? 12 : 8,
              .head_dim = head_dim},
        width(shape.heads * head_dim),
        qkv(1, time * 3 * width * 4),
        d_qkv(1, time * 3 * width * 4),
        rows(2, time * width * 4),
        sums(2, time * shape.heads * 4) {
    fill(qkv.get<float>(0), time * 3 * width);
    fill(rows.get<float>(1), time * width);
  }
  [[nodiscard]] HeadView<const float> in(int third) const {
    return {qkv.get<float>(0) + third * width, shape.time * 3 * width, 3 * width};
  }
  [[nodiscard]] HeadView<float> gradient(int third) const {
    return {d_qkv.get<float>(0) + third * width, shape.time * 3 * width, 3 * width};
  }
  [[nodiscard]] HeadView<float> row(int i) const {
    return {rows.get<float>(i), shape.time * width, width};
  }
  [[nodiscard]] HeadView<const float> row_in(int i) const {
    return {rows.get<float>(i), shape.time * width, width};
  }
  [[nodiscard]] Part pairs() const { return {0, shape.kv_heads}; }

  void forward(const AttentionFunctions<float>& f) const {
    std::fill_n(rows.get<float>(0), shape.time * width, 0.0F);
    std::fill_n(sums.get<float>(0), shape.time * shape.heads,
                -std::numeric_limits<float>::infinity());
    f.forward(shape, {shape.time, 0}, pairs(), in(0), in(1), in(2), row(0), sums.get<float>(0));
  }
  void backward(const AttentionFunctions<float>& f) const {
    std::fill_n(d_qkv.get<float>(0), shape.time * 3 * width, 0.0F);
    f.row_dot(shape, pairs(), row_in(0), row_in(1), sums.get<float>(1));
    f.backward(shape, {shape.time, 0}, pairs(), in(0), in(1), in(2), sums.get<float>(0),
               sums.get<float>(1), row_in(1), gradient(0), gradient(1), gradient(2));
  }
  [[nodiscard]] double flops(double per_score) const {
    return per_score * static_cast<double>(shape.head_dim * shape.heads) *
           static_cast<double>(shape.time * (shape.time + 1)) / 2;
  }

  AttentionShape shape;
  std::int64_t width;
  Arrays qkv;
  Arrays d_qkv;
  Arrays rows;  // o, d_o
  Arrays sums;  // lse, row_dot
};

void bench(benchmark::State& state, const AttentionFunctions<float>& f, std::int64_t time,
           std::int64_t head_dim) {
  const Problem p(time, head_dim);
  p.forward(f);
  p.backward(f);
  std::vector<double> forward;
  std::vector<double> backward;
  for (auto _ : state) {
    const double begin = seconds_now(1);
    p.forward(f);
    const double middle = seconds_now(1);
    p.backward(f);
    const double end = seconds_now(1);
    forward.push_back(middle - begin);
    backward.push_back(end - middle);
    state.SetIterationTime(end - begin);
  }
  const double peak = peak_flops(Arithmetic::kF32);
  const auto report = [&](const std::string& name, double flops, double seconds) {
    state.counters[name + "_GFLOP/s"] = flops / seconds * 1e-9;
    state.counters[name + "_of_peak"] = flops / seconds / peak;
  };
  report("forward", p.flops(4), median(forward));
  report("backward", p.flops(10), median(backward));
  report("both", p.flops(14), median(forward) + median(backward));
}

const bool kRegistered = [] {
  const auto versions = kernels::versions_of<AttentionFunctions<float>>();
  for (const auto& version : versions) {
    for (const std::int64_t head_dim : {64, 128}) {
      for (const std::int64_t time : kTimes) {
        if (&version != &versions.back() && time != 512) continue;
        benchmark::RegisterBenchmark(
            fmt::format("attention/f32/{}/T{}/D{}", version.version, time, head_dim).c_str(),
            [version, time, head_dim](benchmark::State& state) {
              bench(state, *version.functions, time, head_dim);
            })
            ->Iterations(static_cast<std::int64_t>(std::clamp<std::int64_t>(4096 / time, 3, 11)))
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace sinew::bench
