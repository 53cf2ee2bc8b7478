#include "bench/repeat.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "sched/base/check.h"
#include "sched/base/partition.h"

namespace sinew::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Fifty times the skew of about 0.2 us between ranks that leave a barrier with a core each.
constexpr double kBatchTarget_s = 10e-6;
constexpr int kBatchMax = 64;
constexpr int kBlocks = 5;
constexpr int kEstimateCalls = 3;
// On a machine that is busy with other work a call may take a thousand times its estimate. What has
// taken so many times its budget is cut short; ranks agree on that once in so many iterations.
constexpr double kOverrun = 4;
constexpr int kLookEvery = 16;
constexpr int kLongIterations = 3;

// So long that fewer are timed; what caches hold is nothing beside one of them.
bool is_long(double call_s, const RepeatOptions& options) {
  return call_s * options.iterations_min > options.patience_s;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void max_over_ranks(comm::Communicator& communicator, std::span<double> values) {
  communicator.all_reduce(values.data(), values.data(), std::ssize(values), DType::kF64,
                          ReduceOp::kMax);
}

// Seconds of one call after warm-up: the least of a few, since the first ones still map memory. One
// of a long call is enough.
double estimate(comm::Communicator& communicator, const std::function<void()>& candidate,
                const RepeatOptions& options) {
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.warmup; ++i) candidate();
  for (int i = 0; i < kEstimateCalls && !(i > 0 && is_long(best_s, options)); ++i) {
    communicator.barrier();
    const auto begin = Clock::now();
    candidate();
    double taken_s = seconds_since(begin);
    max_over_ranks(communicator, {&taken_s, 1});
    best_s = std::min(best_s, taken_s);
  }
  return best_s;
}

struct Plan {
  int batch = 1;
  bool warms = true;         // an untimed call begins each block
  int iterations = kBlocks;  // of all blocks together
};

int batch_for(double call_s) {
  return static_cast<int>(std::clamp(std::ceil(kBatchTarget_s / call_s), 1.0, double{kBatchMax}));
}

Plan plan_for(double call_s, int batch, const RepeatOptions& options) {
  Plan plan{.batch = batch};
  if (options.calls > 0) {
    while (options.calls % plan.batch != 0) --plan.batch;
    plan.iterations = options.calls / plan.batch;
    return plan;
  }
  plan.warms = !is_long(call_s, options);
  const double least =
      plan.warms ? options.iterations_min
                 : std::max<double>(kLongIterations, std::floor(options.patience_s / call_s));
  const double wanted = options.budget_s / (call_s * plan.batch);
  plan.iterations =
      static_cast<int>(std::clamp(wanted, least, std::max<double>(least, options.iterations_max)));
  return plan;
}

// What was timed of one candidate.
struct Timed {
  std::vector<double> samples_s;
  double spent_s = 0;  // this rank's, with all that is not timed
};

// Collective: whether the budget is far exceeded and enough is known. Never where calls are
// counted.
bool is_late(comm::Communicator& communicator, double spent_s, std::size_t samples,
             const RepeatOptions& options) {
  if (options.calls > 0 || samples < static_cast<std::size_t>(options.iterations_min)) return false;
  max_over_ranks(communicator, {&spent_s, 1});
  return spent_s > kOverrun * options.budget_s;
}

void time_block(comm::Communicator& communicator, const std::function<void()>& candidate,
                const Plan& plan, int block, const RepeatOptions& options, Timed& timed) {
  const std::int64_t iterations = partition(plan.iterations, kBlocks, block).count;
  if (iterations == 0) return;
  if (is_late(communicator, timed.spent_s, timed.samples_s.size(), options)) return;
  const auto block_begin = Clock::now();
  if (plan.warms) candidate();
  for (std::int64_t i = 0; i < iterations; ++i) {
    if (i % kLookEvery == kLookEvery - 1 &&
        is_late(communicator, timed.spent_s + seconds_since(block_begin), timed.samples_s.size(),
                options))
      break;
    communicator.barrier();
    const auto begin = Clock::now();
    for (int call = 0; call < plan.batch; ++call) candidate();
    timed.samples_s.push_back(seconds_since(begin) / plan.batch);
  }
  timed.spent_s += seconds_since(block_begin);
}

}  // namespace

std::vector<Times> time_candidates(comm::Communicator& communicator,
                                   std::span<const std::function<void()>> candidates,
                                   const RepeatOptions& options) {
  std::vector<double> calls_s;
  int batch = 1;
  for (const auto& candidate : candidates) {
    calls_s.push_back(std::max(estimate(communicator, candidate, options), 1e-9));
    batch = std::max(batch, batch_for(calls_s.back()));
  }
  std::vector<Plan> plans;
  for (const double call_s : calls_s) plans.push_back(plan_for(call_s, batch, options));
  std::vector<Timed> timed(candidates.size());
  for (int block = 0; block < kBlocks; ++block) {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      time_block(communicator, candidates[i], plans[i], block, options, timed[i]);
    }
  }
  std::vector<Times> times;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    max_over_ranks(communicator, timed[i].samples_s);
    times.push_back(summarize(timed[i].samples_s, plans[i].batch));
  }
  return times;
}

Times summarize(std::vector<double>& samples_s, int batch) {
  CHECK(!samples_s.empty());
  std::sort(samples_s.begin(), samples_s.end());
  const auto quantile = [&](double p) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(p * static_cast<double>(samples_s.size())));
    return samples_s[std::max<std::size_t>(rank, 1) - 1];
  };
  return {samples_s.front(), quantile(0.5), quantile(0.99), static_cast<int>(samples_s.size()),
          batch};
}

}  // namespace sinew::bench
