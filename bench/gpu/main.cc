// Kernels on a GPU: matrix products of every version, attention, and memory-bound kernels beside
// the device's own copy rate. One JSON line for each; the last of `kRepeats` runs of events.
//
// Never does: run on the host twin, whose times say nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/adamw_gpu.h"
#include "kernels/attention_gpu.h"
#include "kernels/device/runtime.h"
#include "kernels/elementwise_gpu.h"
#include "kernels/gelu_gpu.h"
#include "kernels/gemm_gpu.h"
#include "kernels/layer_norm_gpu.h"
#include "sched/base/error.h"

namespace sinew {
namespace {

constexpr int kRepeats = 5;
constexpr int kCallsPerRepeat = 10;

// Seconds of one call: the median of the repeats, each of several calls between two events.
double seconds_of(device::Stream& stream, const std::function<void()>& call) {
  call();
  stream.synchronize();
  std::vector<double> times;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    device::Event begin;
    device::Event end;
    begin.record(stream);
    for (int i = 0; i < kCallsPerRepeat; ++i) call();
    end.record(stream);
    end.synchronize();
    times.push_back(end.seconds_since(begin) / kCallsPerRepeat);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <typename T>
class Array {
 public:
  Array(device::Stream& stream, std::int64_t count)
      : memory_(static_cast<std::size_t>(count) * sizeof(T)) {
    stream.fill(memory_.data(), 0, memory_.size_bytes());
  }
  operator T*() const { return memory_.as<T>(); }  // NOLINT: stands for the pointer in calls

 private:
  device::Memory memory_;
};

struct Product {
  const char* of;
  std::int64_t m, n, k;
};
// Squares, then a step's products of GPT-2 124M at 8 x 1024 tokens and of a Llama layer.
constexpr Product kProducts[] = {
    {"square", 4096, 4096, 4096},    {"square", 8192, 8192, 8192},
    {"gpt2 qkv", 8192, 2304, 768},   {"gpt2 out", 8192, 768, 768},
    {"gpt2 up", 8192, 3072, 768},    {"gpt2 down", 8192, 768, 3072},
    {"gpt2 head", 8192, 50304, 768}, {"llama qkv", 4096, 6144, 4096},
    {"llama up", 4096, 28672, 4096}, {"llama down", 4096, 4096, 14336},
};

void products(device::Stream& stream) {
  for (const Product& p : kProducts) {
    const Array<bf16> a(stream, p.m * p.k), b(stream, p.k * p.n), c(stream, p.m * p.n);
    kernels::DeviceGemm call = {
        .shape = {.m = p.m, .n = p.n, .k = p.k, .a_stride = p.k, .b_stride = p.n, .c_stride = p.n},
        .a = a,
        .b = b,
        .c = static_cast<bf16*>(c)};
    const Array<float> workspace(stream,
                                 std::max<std::int64_t>(1, kernels::gemm_workspace(call.shape)));
    call.workspace = workspace;
    for (const kernels::GemmVersion& version : kernels::gemm_versions()) {
      if (!version.supports(call, device::properties())) {
        fmt::print(R"({{"bench": "gemm", "of": "{}", "version": "{}", "skipped": "needs {}"}})"
                   "\n",
                   p.of, version.name, version.needs);
        continue;
      }
      const double s = seconds_of(stream, [&] { version.run(call, stream); });
      const auto flops =
          2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
      fmt::print(R"({{"bench": "gemm", "of": "{}", "m": {}, "n": {}, "k": {}, "version": "{}", )"
                 R"("us": {:.1f}, "tflops": {:.1f}}})"
                 "\n",
                 p.of, p.m, p.n, p.k, version.name, s * 1e6, flops / s * 1e-12);
    }
  }
}

void attention(device::Stream& stream) {
  for (const std::int64_t width : {64, 128}) {
    const kernels::AttentionShape shape = {
        .batch = 4, .time = 4096, .heads = 16, .kv_heads = 16, .head_dim = width};
    const std::int64_t row = shape.heads * width;
    const std::int64_t count = shape.batch * shape.time * row;
    const std::int64_t rows = shape.batch * shape.time * shape.heads;
    const Array<bf16> q(stream, count), k(stream, count), v(stream, count), o(stream, count);
    const Array<bf16> d_o(stream, count), d_q(stream, count), d_k(stream, count),
        d_v(stream, count);
    const Array<float> lse(stream, rows), row_dot(stream, rows);
    const auto in = [&](const Array<bf16>& x) {
      return kernels::HeadView<const bf16>{x, shape.time * row, row};
    };
    const auto out = [&](const Array<bf16>& x) {
      return kernels::HeadView<bf16>{x, shape.time * row, row};
    };
    const double forward = seconds_of(stream, [&] {
      kernels::attention_forward(shape, in(q), in(k), in(v), out(o), lse, stream);
    });
    const double backward = seconds_of(stream, [&] {
      kernels::attention_backward(shape, in(q), in(k), in(v), in(o), lse, in(d_o), out(d_q),
                                  out(d_k), out(d_v), row_dot, stream);
    });
    // Causal: half of 4 B H T^2 D; backward is counted as five products against two.
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(shape.time * width);
    fmt::print(R"({{"bench": "attention", "head_dim": {}, "forward_us": {:.1f}, )"
               R"("forward_tflops": {:.1f}, )"
               R"("backward_us": {:.1f}, "backward_tflops": {:.1f}}})"
               "\n",
               width, forward * 1e6, flops / forward * 1e-12, backward * 1e6,
               2.5 * flops / backward * 1e-12);
  }
}

void memory_bound(device::Stream& stream) {
  constexpr std::int64_t kRows = 16384;
  constexpr std::int64_t kChannels = 4096;
  constexpr std::int64_t kCount = kRows * kChannels;
  const Array<bf16> x(stream, kCount), y(stream, kCount), weight(stream, kChannels),
      bias(stream, kChannels);
  const Array<float> mean(stream, kRows), rstd(stream, kRows), gradient(stream, kCount),
      master(stream, kCount), m(stream, kCount), v(stream, kCount);
  const Array<double> sums(stream, kernels::sum_of_squares_workspace(kCount) + 1);
  constexpr double kElements = kCount;
  const double copy_rate = 2 * 2 * kElements / seconds_of(stream, [&] {
                             stream.copy(static_cast<bf16*>(y), static_cast<bf16*>(x), 2 * kCount);
                           });
  fmt::print(R"({{"bench": "copy", "GBps": {:.0f}}})"
             "\n",
             copy_rate * 1e-9);
  const auto report = [&](const char* name, double bytes, const std::function<void()>& call) {
    const double s = seconds_of(stream, call);
    fmt::print(R"({{"bench": "{}", "us": {:.1f}, "GBps": {:.0f}, "of_copy": {:.3f}}})"
               "\n",
               name, s * 1e6, bytes / s * 1e-9, bytes / s / copy_rate);
  };
  report("layer_norm_forward", 4 * kElements, [&] {
    kernels::layer_norm_forward<bf16>({kRows, kChannels}, x, weight, bias, 1e-5F, y, mean, rstd,
                                      stream);
  });
  report("gelu_forward", 4 * kElements, [&] { kernels::gelu_forward<bf16>(x, y, kCount, stream); });
  report("add", 6 * kElements, [&] { kernels::add<bf16>(y, x, kCount, stream); });
  report("adamw_with_master", 30 * kElements,
         [&] { kernels::adamw<float>({.step = 1}, kCount, gradient, master, m, v, y, stream); });
  report("sum_of_squares", 4 * kElements, [&] {
    kernels::sum_of_squares<float>(gradient, kCount, sums, static_cast<double*>(sums) + 1, stream);
  });
}

int run() {
  const std::string missing = !device::unavailable().empty() ? device::unavailable()
                              : device::properties().twin
                                  ? "this build has no CUDA: cmake --preset cuda"
                                  : "";
  if (!missing.empty()) {
    fmt::print(stderr, "bench_gpu: {}\n", missing);
    return 1;
  }
  device::select(0);
  const device::Properties& gpu = device::properties();
  fmt::print(R"({{"device": "{}", "capability": "{}.{}", "multiprocessors": {}}})"
             "\n",
             gpu.name, gpu.major, gpu.minor, gpu.multiprocessors);
  device::Stream stream;
  memory_bound(stream);
  products(stream);
  attention(stream);
  return 0;
}

}  // namespace
}  // namespace sinew

int main() {
  try {
    return sinew::run();
  } catch (const sinew::Error& error) {
    fmt::print(stderr, "bench_gpu: {}\n", error.what());
    return error.exit_code();
  }
}
