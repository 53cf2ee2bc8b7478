// Kernels on a GPU: matrix products of every version in the forms of a training step, attention,
// memory-bound kernels beside the device's own copy rate, and all-reduce between ranks on the one
// GPU beside that rate and a launch. One JSON line for each: medians of kRepeats.
//
// Never does: run on the host twin, whose times say nothing.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/device/choice.h"
#include "kernels/adamw_gpu.h"
#include "kernels/attention_gpu.h"
#include "kernels/device/runtime.h"
#include "kernels/elementwise_gpu.h"
#include "kernels/gelu_gpu.h"
#include "kernels/gemm_gpu.h"
#include "kernels/layer_norm_gpu.h"
#include "sched/base/error.h"
#include "sched/collective/registry.h"

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

// Magnitudes from 0.5 to 1 with random signs and mantissas: a multiplier that is fed zeros takes
// less power, and its clock stays higher than it would in use.
const std::vector<bf16>& random_values() {
  static const std::vector<bf16> values = [] {
    std::vector<bf16> drawn(std::size_t{1} << 20);
    std::uint32_t state = 1;
    for (bf16& value : drawn) {
      state = state * 1664525 + 1013904223;
      value.bits = static_cast<std::uint16_t>((state >> 16 & 0x807f) | 0x3f00);
    }
    return drawn;
  }();
  return values;
}

// Random where T is bf16, else zeros.
template <typename T>
class Array {
 public:
  Array(device::Stream& stream, std::int64_t count)
      : memory_(static_cast<std::size_t>(count) * sizeof(T)) {
    if constexpr (std::is_same_v<T, bf16>) {
      const auto piece = static_cast<std::int64_t>(random_values().size());
      for (std::int64_t at = 0; at < count; at += piece) {
        stream.copy(memory_.as<T>() + at, random_values().data(),
                    static_cast<std::size_t>(std::min(piece, count - at)) * sizeof(T));
      }
    } else {
      stream.fill(memory_.data(), 0, memory_.size_bytes());
    }
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

// What a layer of weights [k, n] computes with m rows, and what it adds to.
enum class Part { kForward, kInputGradient, kWeightGradient };
constexpr Part kParts[] = {Part::kForward, Part::kInputGradient, Part::kWeightGradient};
constexpr std::string_view name_of(Part part) {
  switch (part) {
    case Part::kForward:
      return "forward";
    case Part::kInputGradient:
      return "input gradient";
    case Part::kWeightGradient:
      return "weight gradient";
  }
  return "";
}
kernels::GemmShape shape_of(const Product& p, Part part) {
  switch (part) {
    case Part::kForward:
      return {.m = p.m, .n = p.n, .k = p.k, .a_stride = p.k, .b_stride = p.n, .c_stride = p.n};
    case Part::kInputGradient:
      return {.m = p.m,
              .n = p.k,
              .k = p.n,
              .b_form = kernels::Form::kTransposed,
              .a_stride = p.n,
              .b_stride = p.n,
              .c_stride = p.k};
    case Part::kWeightGradient:
      return {.m = p.k,
              .n = p.n,
              .k = p.m,
              .a_form = kernels::Form::kTransposed,
              .a_stride = p.k,
              .b_stride = p.n,
              .c_stride = p.n};
  }
  return {};
}

void product(const Product& p, Part part, device::Stream& stream) {
  const kernels::GemmShape shape = shape_of(p, part);
  const Array<bf16> a(stream, shape.m * shape.k), b(stream, shape.k * shape.n);
  const Array<float> c(stream, shape.m * shape.n);
  const Array<float> workspace(stream, std::max<std::int64_t>(1, kernels::gemm_workspace(shape)));
  const bool sums = part == Part::kWeightGradient;  // into f32
  const kernels::DeviceGemm call = {.shape = shape,
                                    .a = a,
                                    .b = b,
                                    .beta = sums ? 1.0F : 0.0F,
                                    .c = static_cast<float*>(c),
                                    .c_dtype = sums ? DType::kF32 : DType::kBf16,
                                    .workspace = workspace};
  const std::string of = fmt::format(R"("of": "{} {}", "m": {}, "n": {}, "k": {})", p.of,
                                     name_of(part), shape.m, shape.n, shape.k);
  const kernels::GemmVersion& taken = kernels::gemm_version_for(call);
  double taken_s = 0;
  double library_s = 0;
  for (const kernels::GemmVersion& version : kernels::gemm_versions()) {
    if (!version.supports(call, device::properties())) {
      fmt::print(R"({{"bench": "gemm", {}, "version": "{}", "skipped": "needs {}"}})"
                 "\n",
                 of, version.name, version.needs);
      continue;
    }
    const double s = seconds_of(stream, [&] { version.run(call, stream); });
    if (&version == &taken) taken_s = s;
    if (version.name == "cublaslt") library_s = s;
    const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                         static_cast<double>(shape.k);
    fmt::print(R"({{"bench": "gemm", {}, "version": "{}", "us": {:.1f}, "tflops": {:.1f}}})"
               "\n",
               of, version.name, s * 1e6, flops / s * 1e-12);
  }
  if (library_s == 0) return;
  fmt::print(R"({{"bench": "gemm_beside_cublaslt", {}, "version": "{}", "of_cublaslt": {:.3f}}})"
             "\n",
             of, taken.name, library_s / taken_s);
}

void products(device::Stream& stream) {
  for (const Product& p : kProducts) {
    for (const Part part : kParts) {
      product(p, part, stream);
      std::fflush(stdout);
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

// Bytes read and written per second by the device's own copy.
double memory_bound(device::Stream& stream) {
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
  return copy_rate;
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// From the host's call to the host's knowledge of the end: median.
double latency_of(device::Stream& stream, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < 100; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    stream.synchronize();
    times.push_back(seconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// What one rank of `world` measured: the median of calls one by one, and of calls in a row.
struct AllReduceTimes {
  double latency_s = 0;
  double each_s = 0;
};
AllReduceTimes time_all_reduce(comm::Bootstrap& bootstrap, int channels, std::int64_t bytes) {
  comm::Resident resident(bootstrap, {.channels = channels, .timeout_s = 10});
  device::Stream stream(device::Urgency::kUrgent);
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(float));
  const Array<float> input(stream, count), output(stream, count);
  const comm::ResidentChoice choice =
      comm::choose(resident, {.op = sched::Collective::kAllReduce, .full_bytes = bytes});
  const comm::ResidentWork work = {static_cast<float*>(input), static_cast<float*>(output), count};
  const auto call = [&] { comm::run(resident, choice, 0, work, stream); };
  // Nobody allocates while another's kernel waits.
  stream.synchronize();
  static_cast<void>(bootstrap.exchange(bootstrap.rank()));
  call();
  resident.check(stream);
  static_cast<void>(bootstrap.exchange(bootstrap.rank()));
  const double latency_s = latency_of(stream, call);
  const double each_s = seconds_of(stream, call);
  resident.check(stream);
  resident.close(bootstrap);
  return {latency_s, each_s};
}

// Ranks as threads of this process: their kernels run at once, as those of processes that share a
// GPU do only under NVIDIA's MPS. What every algorithm must do is to read every input and to write
// every output once.
void all_reduces(device::Stream& stream, double copy_rate) {
  constexpr int kWorld = 2;
  const Array<bf16> word(stream, 8);
  const double launch_s =
      latency_of(stream, [&] { kernels::gelu_forward<bf16>(word, word, 8, stream); });
  fmt::print(R"({{"bench": "launch", "us": {:.2f}}})"
             "\n",
             launch_s * 1e6);
  for (const int channels : {1, 8, 32}) {
    for (const std::int64_t bytes : {8, 1 << 13, 1 << 17, 1 << 20, 1 << 24, 1 << 28}) {
      const auto bootstraps = comm::thread_bootstraps(kWorld, 60);
      std::vector<AllReduceTimes> times(kWorld);
      std::vector<std::string> trouble(kWorld);
      std::vector<std::thread> threads;
      for (std::size_t r = 0; r < kWorld; ++r) {
        threads.emplace_back([&, r] {
          try {
            device::select(0);
            times[r] = time_all_reduce(*bootstraps[r], channels, bytes);
          } catch (const sinew::Error& error) {
            trouble[r] = error.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      if (!trouble[0].empty()) throw Error(trouble[0]);
      const double bound_s = 2.0 * kWorld * static_cast<double>(bytes) / copy_rate;
      fmt::print(R"({{"bench": "all_reduce", "ranks": {}, "channels": {}, "bytes": {}, )"
                 R"("latency_us": {:.2f}, "of_launch": {:.2f}, "us": {:.2f}, "of_copy": {:.3f}}})"
                 "\n",
                 kWorld, channels, bytes, times[0].latency_s * 1e6, times[0].latency_s / launch_s,
                 times[0].each_s * 1e6, bound_s / times[0].each_s);
      std::fflush(stdout);
    }
  }
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
  const double copy_rate = memory_bound(stream);
  products(stream);
  attention(stream);
  all_reduces(stream, copy_rate);
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
