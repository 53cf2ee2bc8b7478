// Reductions: two operands in place (what a ring step does) and into a third array, many sources,
// and the copy.
#include "kernels/reduce.h"

#include <fmt/format.h>

#include <vector>

#include "bench/kernels/memory_bound.h"
#include "kernels/registry.h"
#include "sched/base/units.h"

namespace sinew::bench {
namespace {

using kernels::KernelVersion;
using kernels::ReduceFunctions;

void bench_binary(benchmark::State& state, const ReduceFunctions& f, DType dtype, ReduceOp op,
                  std::int64_t size_bytes, bool in_place) {
  const Arrays arrays(3, size_bytes);
  const auto count = size_bytes / static_cast<std::int64_t>(size_of(dtype));
  const auto reduce = f.binary[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  auto* left = arrays.get<char>(0);
  auto* target = in_place ? left : arrays.get<char>(2);
  const auto bytes = static_cast<double>(size_bytes);
  measure(state, {2 * bytes, bytes, (in_place ? 2 : 3) * size_bytes},
          [&] { reduce(target, left, arrays.get<char>(1), count); });
}

void bench_many(benchmark::State& state, const ReduceFunctions& f, DType dtype, int sources,
                std::int64_t size_bytes) {
  const Arrays arrays(sources + 1, size_bytes);
  const auto count = size_bytes / static_cast<std::int64_t>(size_of(dtype));
  std::vector<const void*> pointers;
  for (int s = 0; s < sources; ++s) pointers.push_back(arrays.get<char>(s));
  const auto reduce =
      f.many[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(ReduceOp::kSum)];
  const auto bytes = static_cast<double>(size_bytes);
  measure(state, {sources * bytes, bytes, (sources + 1) * size_bytes},
          [&] { reduce(arrays.get<char>(sources), pointers, count); });
}

void bench_copy(benchmark::State& state, const ReduceFunctions& f, std::int64_t size_bytes) {
  const Arrays arrays(2, size_bytes);
  const auto bytes = static_cast<double>(size_bytes);
  const auto copy = f.copy[static_cast<std::size_t>(kernels::stores_for(2 * size_bytes))];
  measure(state, {bytes, bytes, 2 * size_bytes},
          [&] { copy(arrays.get<char>(1), arrays.get<char>(0), size_bytes); });
}

void register_version(const KernelVersion<ReduceFunctions>& version, bool is_best) {
  const ReduceFunctions& f = *version.functions;
  const char* prefix = is_best ? "" : "ladder/";
  const auto sizes = parse_byte_range(is_best ? "8,64,512,4K,32K,256K,2M,16M,64M" : "256K,16M");
  for (const std::int64_t size : sizes) {
    const std::string bytes = format_bytes(size);
    for (const DTypeInfo& type : kDTypes) {
      add_benchmark(
          fmt::format("{}reduce/{}/sum/inplace/{}/{}", prefix, type.name, version.version, bytes),
          [&f, type, size](benchmark::State& state) {
            bench_binary(state, f, type.dtype, ReduceOp::kSum, size, true);
          });
      add_benchmark(
          fmt::format("{}reduce/{}/sum/apart/{}/{}", prefix, type.name, version.version, bytes),
          [&f, type, size](benchmark::State& state) {
            bench_binary(state, f, type.dtype, ReduceOp::kSum, size, false);
          });
      if (size == (256 << 10)) {
        for (const ReduceOp op : {ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
          add_benchmark(fmt::format("{}reduce/{}/{}/inplace/{}/{}", prefix, type.name, name_of(op),
                                    version.version, bytes),
                        [&f, type, op, size](benchmark::State& state) {
                          bench_binary(state, f, type.dtype, op, size, true);
                        });
        }
      }
    }
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const int sources : {2, 4, 8}) {
        add_benchmark(fmt::format("{}reduce_many/{}/{}/{}/{}", prefix, name_of(dtype), sources,
                                  version.version, bytes),
                      [&f, dtype, sources, size](benchmark::State& state) {
                        bench_many(state, f, dtype, sources, size);
                      });
      }
    }
    add_benchmark(fmt::format("{}copy/{}/{}", prefix, version.version, bytes),
                  [&f, size](benchmark::State& state) { bench_copy(state, f, size); });
  }
}

const bool kRegistered = [] {
  const auto versions = kernels::versions_of<ReduceFunctions>();
  for (const auto& version : versions) register_version(version, &version == &versions.back());
  return true;
}();

}  // namespace
}  // namespace sinew::bench
