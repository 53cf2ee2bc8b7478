// bench_ring: attention over a ring of ranks, forward and backward, with each way of sharing out
// the positions of a causal sequence, beside what theory says of them.
//
// Work is counted in blocks of T / 2c by T / 2c. Of c ranks with contiguous positions rank r has
// 4 r + 2, with zigzag and striped ones every rank 2 c. A pass takes no less than the work of the
// busiest core, that of the ranks which stay on it: the ratio to zigzag's is the theory. What a
// core for each rank would give is seen in the processor time of the busiest rank.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <ctime>
#include <mutex>
#include <string>
#include <vector>

#include "bench/program.h"
#include "model/attention.h"
#include "sched/base/error.h"
#include "tools/args.h"
#include "tools/json_lines.h"
#include "tools/machine.h"

namespace sinew::bench {
namespace {

struct Options {
  std::string json;
  std::int64_t time = 8192;
  std::int64_t heads = 1;
};

constexpr std::int64_t kHeadDim = 64;

struct Passes {
  double wall_s = 0;       // the slowest rank's
  double processor_s = 0;  // the busiest rank's
  double blocks = 0;       // of the busiest core, by theory
};

// In blocks, of one pass.
double work_of(sched::ContextMode mode, int ranks, int rank) {
  return mode == sched::ContextMode::kContiguous ? 4 * rank + 2 : 2 * ranks;
}

double processor_now_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Threads that the system has put on one core would take turns there however many cores there are.
void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  static_cast<void>(sched_setaffinity(0, sizeof cores, &cores));
}

// The best of some passes, each begun by all ranks at once.
Passes time_passes(const Options& options, sched::ContextMode mode, int ranks) {
  Passes best{1e9, 1e9, 0};
  cpu_set_t all_cores;
  sched_getaffinity(0, sizeof all_cores, &all_cores);
  std::mutex mutex;
  comm::Communicator::run_threads(ranks, {.transport = "local"}, [&](comm::Communicator& ring) {
    const std::int32_t core = ring.own_cores().front();
    stay_on(core);
    std::vector<std::int32_t> cores(static_cast<std::size_t>(ranks));
    ring.all_gather(&core, cores.data(), 1, DType::kI32);
    double blocks = 0;
    for (int rank = 0; rank < ranks; ++rank)
      blocks += cores[static_cast<std::size_t>(rank)] == core ? work_of(mode, ranks, rank) : 0;
    const kernels::AttentionShape shape{.batch = 1,
                                        .time = options.time / ranks,
                                        .heads = options.heads,
                                        .kv_heads = options.heads,
                                        .head_dim = kHeadDim};
    model::Arena arena("bench");
    const auto attention = model::make_attention<float>(shape, mode, &ring, arena);
    const std::int64_t width = shape.time * shape.heads * kHeadDim;
    auto* qkv = arena.allocate<float>(3 * width);
    auto* out = arena.allocate<float>(width);
    auto* lse = arena.allocate<float>(shape.time * shape.heads);
    auto* d_qkv = arena.allocate<float>(3 * width);
    for (std::int64_t i = 0; i < 3 * width; ++i)
      qkv[i] = static_cast<float>((i * 37 + ring.rank()) % 101) / 101 - 0.5F;
    constexpr int kPasses = 4;
    for (int pass = 0; pass < kPasses; ++pass) {
      ring.barrier();
      const double processor = processor_now_s();
      timespec begin{};
      clock_gettime(CLOCK_MONOTONIC, &begin);
      attention->forward(qkv, out, lse, {});
      attention->backward(qkv, out, lse, out, d_qkv, {});
      timespec end{};
      clock_gettime(CLOCK_MONOTONIC, &end);
      double most[3] = {static_cast<double>(end.tv_sec - begin.tv_sec) +
                            1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec),
                        processor_now_s() - processor, blocks};
      ring.all_reduce(most, most, 3, DType::kF64, ReduceOp::kMax);
      const std::lock_guard<std::mutex> lock(mutex);
      best.wall_s = std::min(best.wall_s, most[0]);
      best.processor_s = std::min(best.processor_s, most[1]);
      best.blocks = most[2];
    }
  });
  sched_setaffinity(0, sizeof all_cores, &all_cores);  // the caller was one of the ranks
  return best;
}

int run(int argc, char** argv) {
  Options options;
  tools::Args args("bench_ring", "ring attention with each way of sharing out positions");
  args.option("--json", options.json, "file of one JSON record a line");
  args.option("--time", options.time, "positions of the sequence, a multiple of 8", {8, 1 << 20});
  args.option("--heads", options.heads, "heads", {1, 64});
  if (!args.parse(std::vector<std::string>(argv + 1, argv + argc))) {
    fmt::print("{}", args.help());
    return 0;
  }
  if (options.time % 8 != 0)
    throw UsageError(fmt::format("--time {}; legal values: multiples of 8", options.time));
  const int cores = tools::concurrent_ranks(tools::describe_machine());
  tools::JsonLines json(options.json);
  fmt::print(
      "{} positions, {} heads of {} channels, f32, {} cores; times over zigzag's, measured and by "
      "theory\n{:>5}  {:<11}{:>10}{:>8}{:>8}{:>12}{:>8}{:>16}\n",
      options.time, options.heads, kHeadDim, cores, "ranks", "positions", "pass", "ratio", "theory",
      "busiest", "ratio", "theory, c cores");
  for (const int ranks : {2, 4}) {
    Passes zigzag;
    for (const char* name : {"zigzag", "contiguous", "striped"}) {
      const sched::ContextMode mode = sched::parse_context_mode(name);
      const Passes found = time_passes(options, mode, ranks);
      if (mode == sched::ContextMode::kZigzag) zigzag = found;
      const double wall = found.wall_s / zigzag.wall_s;
      const double processor = found.processor_s / zigzag.processor_s;
      const double theory = found.blocks / zigzag.blocks;
      const double theory_alone = work_of(mode, ranks, ranks - 1) / (2 * ranks);
      fmt::print("{:>5}  {:<11}{:>7.1f} ms{:>8.2f}{:>8.2f}{:>9.1f} ms{:>8.2f}{:>16.2f}\n", ranks,
                 name, found.wall_s * 1e3, wall, theory, found.processor_s * 1e3, processor,
                 theory_alone);
      tools::JsonRecord record;
      record.add("ranks", ranks)
          .add("cores", cores)
          .add("positions", name)
          .add("pass_s", found.wall_s)
          .add("ratio", wall)
          .add("ratio_theory", theory)
          .add("busiest_processor_s", found.processor_s)
          .add("busiest_ratio", processor)
          .add("busiest_ratio_theory", theory_alone);
      json.write(record);
    }
  }
  json.keep();
  return 0;
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  return sinew::bench::run_program("bench_ring", sinew::bench::run, argc, argv);
}
