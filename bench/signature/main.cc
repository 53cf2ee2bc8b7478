// bench_signature: what it costs that each message carries the signature of its call. The same
// all-reduce of 8 B by two builds of comm in one program: as it is, and without what announces a
// call (its hash, the history of hashes, the entry in the ranks' table).
//
// Both take turns block by block, so a slow phase of the machine meets both. Where a communicator's
// memory lies makes up to a fifth of such a call's time, so both are created anew many times, in
// turn the one and the other first; a creation gives one ratio, the median of its blocks'. The
// interval is over creations (bench/paired.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/paired.h"
#include "bench/program.h"
#include "bench/signature/side.h"
#include "tools/args.h"
#include "tools/json_lines.h"

namespace sinew::bench {
namespace {

struct Options {
  std::string json;
  int creations = 100;
  int blocks = 50;
  int calls = 500;  // of a block: some 70 us
};

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Nanoseconds of one call.
double time_block(SignatureSide& side, int calls) {
  side.barrier();
  const auto begin = Clock::now();
  side.calls(calls);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / calls;
}

struct Creation {
  double with_ns = 0;
  double without_ns = 0;
  double ratio = 0;  // the median of the blocks'
};

Creation time_creation(const Options& options, bool with_first) {
  std::unique_ptr<SignatureSide> sides[2];  // with, without
  for (const bool with : {with_first, !with_first})
    sides[with ? 0 : 1] = with ? comm::signature_side() : comm_unsigned::signature_side();
  std::vector<double> times[2];
  for (int block = -1; block < options.blocks; ++block) {
    for (const int turn : {0, 1}) {
      const int side = (block + turn + 1) % 2;
      const double taken = time_block(*sides[side], options.calls);
      if (block >= 0) times[side].push_back(taken);  // the first only warms up
    }
  }
  for (std::vector<double>& side : times)
    sides[0]->max_over_ranks(side.data(), static_cast<std::int64_t>(side.size()));
  std::vector<double> ratios;
  for (std::size_t block = 0; block < times[0].size(); ++block)
    ratios.push_back(times[0][block] / times[1][block]);
  return {median(times[0]), median(times[1]), median(ratios)};
}

int run(int argc, char** argv) {
  Options options;
  tools::Args args("bench_signature", "what the signatures of calls cost: all-reduce of 8 B");
  args.option("--json", options.json, "file of one JSON record a line");
  args.option("--creations", options.creations, "times that both communicators are created",
              {6, 1000});
  args.option("--blocks", options.blocks, "of each, per creation", {1, 10000});
  args.option("--calls", options.calls, "of a block", {1, 100000});
  if (!args.parse(std::vector<std::string>(argv + 1, argv + argc))) {
    fmt::print("{}", args.help());
    return 0;
  }
  const std::unique_ptr<SignatureSide> ranks = comm::signature_side();
  tools::JsonLines json(ranks->rank() == 0 ? options.json : std::string());
  std::vector<double> with;
  std::vector<double> without;
  std::vector<double> ratios;
  for (int i = 0; i < options.creations; ++i) {
    const Creation found = time_creation(options, i % 2 == 0);
    with.push_back(found.with_ns);
    without.push_back(found.without_ns);
    ratios.push_back(found.ratio);
  }
  if (ranks->rank() != 0) return 0;
  const PairedRatio ratio = paired_ratio(ratios);
  fmt::print(
      "all_reduce of 8 B, {} ranks, {} creations of {} blocks of {} calls each\n"
      "with signatures {:.1f} ns, without {:.1f} ns (medians)\n"
      "ratio {:.4f}, 95 % interval {:.4f} to {:.4f}\n",
      ranks->world(), options.creations, options.blocks, options.calls, median(with),
      median(without), ratio.median, ratio.low, ratio.high);
  json.write(tools::JsonRecord()
                 .add("op", "all_reduce")
                 .add("bytes", 8)
                 .add("ranks", ranks->world())
                 .add("creations", options.creations)
                 .add("blocks", options.blocks)
                 .add("calls", options.calls)
                 .add("with_ns", median(with))
                 .add("without_ns", median(without))
                 .add("ratio", ratio.median)
                 .add("ratio_low", ratio.low)
                 .add("ratio_high", ratio.high));
  json.keep();
  return 0;
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  return sinew::bench::run_program("bench_signature", sinew::bench::run, argc, argv);
}
