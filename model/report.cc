#include "model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "model/alone.h"
#include "sched/pipeline/simulate.h"
#include "sched/plan/flops.h"

namespace sinew::model {

namespace {

// A span as numbers, so that it can be gathered.
struct PackedSpan {
  double letter;  // of the label: F, B or W
  double microbatch;
  double shade;
  double begin_s;
  double end_s;
};
constexpr std::int64_t kPackedNumbers = 5;
static_assert(sizeof(PackedSpan) == kPackedNumbers * sizeof(double));

// Spans in seconds since the first one began. All ranks of a host read one clock.
void begin_at_zero(sched::Timeline& timeline) {
  double first = timeline.spans.empty() ? 0 : timeline.spans.front().begin_s;
  for (const sched::Span& span : timeline.spans) first = std::min(first, span.begin_s);
  for (sched::Span& span : timeline.spans) {
    span.begin_s -= first;
    span.end_s -= first;
  }
}

// Operations per second of a product of square matrices, the best of `times`.
template <typename T>
double gemm_rate(std::int64_t size, int times, kernels::Threads threads) {
  Arena arena("peak", threads.accelerator);
  T* a = arena.allocate<T>(size * size);
  T* b = arena.allocate<T>(size * size);
  T* c = arena.allocate<T>(size * size);
  std::fill_n(a, size * size, kernels::narrow<T>(1));
  std::fill_n(b, size * size, kernels::narrow<T>(1));
  const kernels::GemmShape shape{
      .m = size, .n = size, .k = size, .a_stride = size, .b_stride = size, .c_stride = size};
  const auto cube = static_cast<double>(size * size * size);
  double best = 0;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    kernels::gemm<T, T>({.shape = shape, .a = a, .b = b, .c = c}, threads);
    kernels::synchronize(threads);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2 * cube / seconds);
  }
  return best;
}

// Large enough for the peak rate: on a processor; on a device, which may be any, large enough to
// take a millisecond, at most what the fastest need.
template <typename T>
std::int64_t peak_size(kernels::Threads threads) {
  constexpr std::int64_t kProcessorSize = 384;
  constexpr std::int64_t kDeviceSizeMax = 4096;
  constexpr double kEnough_s = 1e-3;
  if (threads.accelerator == nullptr) return kProcessorSize;
  std::int64_t size = 64;
  for (; size < kDeviceSizeMax; size *= 2) {
    const auto cube = static_cast<double>(size * size * size);
    if (2 * cube / gemm_rate<T>(size, 2, threads) > kEnough_s) break;
  }
  return size;
}

// Operations per second of one rank while all ranks compute: the peak that utilisation is measured
// against.
template <typename T>
double measured_peak(Parallel& parallel, kernels::Threads threads) {
  const std::int64_t size = peak_size<T>(threads);
  parallel.world().barrier();
  const double rate = gemm_rate<T>(size, 4, threads);
  parallel.world().barrier();
  return rate;
}

class Rows {
 public:
  template <typename Predicted, typename Found>
  void add(std::string name, std::string unit, Predicted predicted, Found found) {
    rows_.push_back({std::move(name), std::move(unit), static_cast<double>(predicted),
                     static_cast<double>(found)});
  }
  std::vector<Compared> take() { return std::move(rows_); }

 private:
  std::vector<Compared> rows_;
};

sched::UnitSizes unit_sizes(const FlatLayout& flat) {
  sched::UnitSizes units;
  std::int64_t table = 0;
  bool has_norm = false;
  for (const Unit& unit : flat.units) {
    const Parameter& first = flat.parameters[unit.first];
    units.add(unit.count, unit.layer >= 0);
    if (first.layout.tied && !first.second_copy) table = unit.count;
    has_norm = has_norm || first.final_norm;
  }
  if (has_norm) units.shared_table = table;
  return units;
}

template <typename T>
void add_memory(const TrainPlan& plan, const Stage<T>& stage, const sched::PerAxis& at,
                const Memory& memory, Rows& rows) {
  const sched::RunShape& run = plan.run;
  const sched::StaticBytes bytes =
      sched::static_bytes(stage.count(), run.zero, run.precision, run.shards(),
                          (at.dp * run.sizes.cp + at.cp) % run.shards());
  rows.add("parameters", "bytes", bytes.parameters, memory.parameters.size_bytes());
  rows.add("gradients", "bytes", bytes.gradients, memory.gradients.size_bytes());
  rows.add(memory.optimizer.offloads() ? "optimizer state, in files" : "optimizer state", "bytes",
           bytes.optimizer, memory.optimizer.size_bytes());

  const std::int64_t working = sched::working_bytes(run, unit_sizes(stage.flat()));
  if (working > 0 || memory.gathered.size_bytes() > 0)
    rows.add("working buffers of units", "bytes", working, memory.gathered.size_bytes());
  rows.add("activations", "bytes", sched::activation_bytes(run, plan.schedule, at.pp),
           memory.activations.size_bytes());
}

// The closed forms of a schedule in the table; of a loaded one what its proof and its simulation
// with equal times say.
int predicted_peak_live(const TrainPlan& plan, int pp_rank) {
  if (plan.run.loaded) return plan.facts.peak_live[static_cast<std::size_t>(pp_rank)];
  return sched::find_pipe_algorithm(plan.run.schedule)
      .peak_live(sched::pipe_params(plan.run), pp_rank);
}

double predicted_bubble(const TrainPlan& plan) {
  if (plan.run.loaded) return sched::simulate(plan.schedule, sched::PipeTimes{}).bubble;
  return sched::find_pipe_algorithm(plan.run.schedule).bubble(sched::pipe_params(plan.run), {});
}

// Adds what communication moves and takes; returns the seconds a step that it would take alone.
double add_traffic(const TrainPlan& plan, const FlatLayout& flat, const Parallel& parallel,
                   std::span<const Piece> owned, const Measured& measured, bool times, Rows& rows) {
  const sched::PerAxis at = parallel.coordinates();
  double alone_s = 0;
  const Traffic predicted =
      predict_traffic(plan.run, plan.schedule, at, flat, owned,
                      static_cast<std::int64_t>(whole_parameters(plan.config).size()));
  for (std::size_t i = 0; i < kGroups; ++i) {
    for (const sched::Pattern pattern : {sched::Pattern::kAllReduce, sched::Pattern::kReduceScatter,
                                         sched::Pattern::kAllGather, sched::Pattern::kMessage}) {
      const auto group = static_cast<Group>(i);
      const Amount& formula = predicted.at(group, pattern);
      const Amount& counted = measured.traffic.at(group, pattern);
      comm::Communicator* communicator = communicator_of(parallel, group);
      const bool messages = pattern == sched::Pattern::kMessage &&
                            (group == Group::kPipeline || group == Group::kContext);
      double one_s = 0;
      // Of messages ranks send different numbers, and all of them take part.
      if (times && communicator != nullptr && (formula.calls > 0 || messages)) {
        one_s = time_alone(*communicator, pattern,
                           formula.payload_bytes / std::max<std::int64_t>(1, formula.calls));
      }
      if (formula.calls == 0 && counted.calls == 0) continue;
      const std::string name = fmt::format("{} {}", name_of(group), sched::name_of(pattern));
      const auto steps = static_cast<double>(measured.steps);
      rows.add(name + " a step", "calls", formula.calls,
               static_cast<double>(counted.calls) / steps);
      rows.add(name + " payload a step", "bytes", formula.payload_bytes,
               static_cast<double>(counted.payload_bytes) / steps);
      rows.add(name + " sent a step", "bytes", formula.sent_bytes, counted.sent_bytes / steps);
      if (times) {
        rows.add(name + " time a step (alone; in calls and waits)", "s",
                 one_s * static_cast<double>(formula.calls), counted.seconds / steps);
      }
      alone_s += one_s * static_cast<double>(formula.calls);
    }
  }
  return alone_s;
}

// The operations of the model at the rate GEMM reaches on all ranks at once, the bubble, and
// communication alone.
template <typename T>
void add_time(const TrainPlan& plan, Parallel& parallel, const Measured& measured, double alone_s,
              kernels::Threads threads, Rows& rows) {
  const sched::RunShape& run = plan.run;
  const double peak = measured_peak<T>(parallel, threads) * parallel.grid().world();
  const sched::FlopsConvention& convention = sched::find_flops_convention("llm.c");
  const auto tokens = static_cast<double>(run.batch * run.time);
  const double flops = convention.per_token(run.model, run.time) * tokens;
  const double bubble = predicted_bubble(plan);
  rows.add("step time (operations at GEMM's rate, bubble, communication alone)", "s",
           flops / peak * (1 + bubble) + alone_s, measured.step_s);
  rows.add("of a mean step outside communication (operations at GEMM's rate)", "s", flops / peak,
           measured.mean_s - measured.traffic.seconds() / static_cast<double>(measured.steps));
  rows.add(fmt::format("utilisation ({}: {}; peak measured with GEMM on all ranks)",
                       convention.name, convention.formula),
           "", 1 / (1 + bubble),
           sched::utilisation(convention, run.model, run.time,
                              {.tokens = tokens, .seconds = measured.step_s, .peak_flops = peak}));
}

}  // namespace

sched::Timeline gather_timeline(const TrainPlan& plan, const std::vector<sched::Span>& own,
                                Parallel& parallel) {
  sched::Timeline timeline;
  timeline.title =
      fmt::format("{} of one step, measured; a stage is a pipeline rank", plan.schedule.name);
  timeline.row_name = "stage";
  if (parallel.pipeline() == nullptr) {
    timeline.spans = own;
    begin_at_zero(timeline);
    return timeline;
  }
  // Every stage has a forward, a backward and perhaps a weight gradient of each microbatch.
  const std::size_t per_rank = 3 * static_cast<std::size_t>(plan.schedule.chunks) *
                               static_cast<std::size_t>(plan.schedule.microbatches);
  std::vector<PackedSpan> mine(per_rank, PackedSpan{});
  for (std::size_t i = 0; i < std::min(per_rank, own.size()); ++i) {
    mine[i] = {static_cast<double>(own[i].label[0]), std::stod(own[i].label.substr(1)),
               static_cast<double>(own[i].shade), own[i].begin_s, own[i].end_s};
  }
  std::vector<PackedSpan> all(per_rank * static_cast<std::size_t>(plan.schedule.ranks));
  parallel.pipeline()->all_gather(
      mine.data(), all.data(), static_cast<std::int64_t>(per_rank) * kPackedNumbers, DType::kF64);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].end_s <= all[i].begin_s) continue;
    timeline.spans.push_back({.row = static_cast<int>(i / per_rank),
                              .lane = 0,
                              .label = fmt::format("{}{}", static_cast<char>(all[i].letter),
                                                   static_cast<int>(all[i].microbatch)),
                              .begin_s = all[i].begin_s,
                              .end_s = all[i].end_s,
                              .shade = static_cast<int>(all[i].shade)});
  }
  begin_at_zero(timeline);
  return timeline;
}

template <typename T>
std::vector<Compared> compare(const TrainPlan& plan, const Stage<T>& stage, Parallel& parallel,
                              const Memory& memory, const Measured& measured,
                              kernels::Threads threads) {
  const sched::PerAxis at = parallel.coordinates();
  Rows rows;
  add_memory(plan, stage, at, memory, rows);
  if (measured.steps == 0) return rows.take();
  rows.add("peak live microbatches", "", predicted_peak_live(plan, at.pp), measured.peak_live);
  // A device's collectives are queued: what they take shows in no call.
  const double alone_s = add_traffic(plan, stage.flat(), parallel, stage.units().owned(), measured,
                                     threads.accelerator == nullptr, rows);
  add_time<T>(plan, parallel, measured, alone_s, threads, rows);
  return rows.take();
}

template std::vector<Compared> compare<float>(const TrainPlan&, const Stage<float>&, Parallel&,
                                              const Memory&, const Measured&, kernels::Threads);
template std::vector<Compared> compare<bf16>(const TrainPlan&, const Stage<bf16>&, Parallel&,
                                             const Memory&, const Measured&, kernels::Threads);
template std::vector<Compared> compare<double>(const TrainPlan&, const Stage<double>&, Parallel&,
                                               const Memory&, const Measured&, kernels::Threads);

}  // namespace sinew::model
