// bench_kernels: every kernel version of the registry, with the fraction of what this machine can
// do, measured at start by this program. Options are Google Benchmark's: --benchmark_filter=REGEX
// picks rows.
#include <benchmark/benchmark.h>

#include "bench/kernels/roofline.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("roofline", sinew::bench::describe_roofline());
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
