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
#include "kernels/element.h"
#include "kernels/registry.h"

namespace sinew::bench {
namespace {

using kernels::AttentionFunctions;
using kernels::AttentionShape;
using kernels::HeadView;

constexpr std::int64_t kTimes[] = {256, 512, 1024, 2048, 4096};

// Twelve heads of 64 (GPT-2 124M), eight of 128; one sequence; q, k, v side by side in one matrix.
// Results are those of the partial form: of the type of the sums.
template <typename T>
struct Problem {
  using W = kernels::Wide<T>;
  Problem(std::int64_t time, std::int64_t head_dim)
      : shape{.batch = 1,
              .time = time,
              .heads = head_dim == 64 ? 12 : 8,
              .kv_heads = head_dim == 64 ? 12 : 8,
              .head_dim = head_dim},
        width(shape.heads * head_dim),
        qkv(1, 3 * time * width * size_of_element<T>()),
        d_qkv(1, 3 * time * width * size_of_element<W>()),
        d_out(1, time * width * size_of_element<T>()),
        out(1, time * width * size_of_element<W>()),
        sums(2, time * shape.heads * size_of_element<W>()) {
    fill(qkv.get<T>(0), 3 * time * width);
    fill(d_out.get<T>(0), time * width);
  }
  template <typename U>
  static constexpr std::int64_t size_of_element() {
    return static_cast<std::int64_t>(sizeof(U));
  }
  [[nodiscard]] HeadView<const T> in(int third) const {
    return {qkv.get<T>(0) + third * width, shape.time * 3 * width, 3 * width};
  }
  [[nodiscard]] HeadView<const T> d_o() const {
    return {d_out.get<T>(0), shape.time * width, width};
  }
  [[nodiscard]] HeadView<W> gradient(int third) const {
    return {d_qkv.get<W>(0) + third * width, shape.time * 3 * width, 3 * width};
  }
  [[nodiscard]] HeadView<W> o() const { return {out.get<W>(0), shape.time * width, width}; }
  [[nodiscard]] Part pairs() const { return {0, shape.kv_heads}; }

  void forward(const AttentionFunctions<T>& f) const {
    std::fill_n(out.get<W>(0), shape.time * width, W{0});
    std::fill_n(sums.get<W>(0), shape.time * shape.heads, -std::numeric_limits<W>::infinity());
    f.forward(shape, {shape.time, 0}, pairs(), in(0), in(1), in(2), o(), sums.get<W>(0));
  }
  void backward(const AttentionFunctions<T>& f) const {
    std::fill_n(d_qkv.get<W>(0), shape.time * 3 * width, W{0});
    f.row_dot(shape, pairs(), in(0), d_o(), sums.get<W>(1));
    f.backward(shape, {shape.time, 0}, pairs(), in(0), in(1), in(2), sums.get<W>(0), sums.get<W>(1),
               d_o(), gradient(0), gradient(1), gradient(2));
  }
  [[nodiscard]] double flops(double per_score) const {
    return per_score * static_cast<double>(shape.head_dim * shape.heads) *
           static_cast<double>(shape.time * (shape.time + 1)) / 2;
  }

  AttentionShape shape;
  std::int64_t width;
  Arrays qkv;
  Arrays d_qkv;
  Arrays d_out;
  Arrays out;
  Arrays sums;  // lse, row_dot
};

template <typename T>
void bench(benchmark::State& state, const AttentionFunctions<T>& f, std::int64_t time,
           std::int64_t head_dim) {
  const Problem<T> p(time, head_dim);
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
  const double peak = gemm_peak<T>();
  const auto report = [&](const std::string& name, double flops, double seconds) {
    state.counters[name + "_GFLOP/s"] = flops / seconds * 1e-9;
    state.counters[name + "_of_peak"] = flops / seconds / peak;
  };
  report("forward", p.flops(4), median(forward));
  report("backward", p.flops(10), median(backward));
  report("both", p.flops(14), median(forward) + median(backward));
}

template <typename T>
void register_type(const char* type) {
  const auto versions = kernels::versions_of<AttentionFunctions<T>>();
  for (const auto& version : versions) {
    for (const std::int64_t head_dim : {64, 128}) {
      for (const std::int64_t time : kTimes) {
        if (&version != &versions.back() && time != 512) continue;
        benchmark::RegisterBenchmark(
            fmt::format("{}attention/{}/T{}/D{}/{}", &version == &versions.back() ? "" : "ladder/",
                        type, time, head_dim, version.version)
                .c_str(),
            [version, time, head_dim](benchmark::State& state) {
              bench<T>(state, *version.functions, time, head_dim);
            })
            ->Iterations(static_cast<std::int64_t>(std::clamp<std::int64_t>(4096 / time, 3, 11)))
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

const bool kRegistered = [] {
  register_type<float>("f32");
  register_type<bf16>("bf16");
  return true;
}();

}  // namespace
}  // namespace sinew::bench
