// layouts: trains every legal layout of these ranks for a few steps and compares each with one
// rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "model/layouts.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/session.h"
#include "tools/table.h"
#include "tools/train_memory.h"
#include "tools/train_options.h"

namespace sinew::tools {
namespace {

struct Options {
  model::TrainOptions train;
  std::string precisions = "f64";
  std::int64_t sample = 0;
  std::string transport = "auto";
  std::string json;
  double timeout_s = 60;
};

// The one-rank run, on every rank by itself: a communicator of one.
model::LayoutRun run_alone(const model::TrainOptions& base, comm::Communicator& world,
                           const model::Batch& batch) {
  const auto alone = world.split(world.rank(), 0);
  model::TrainOptions options = base;
  options.tp = options.cp = options.pp = options.dp = 1;
  options.sequence_parallel = false;
  options.microbatches = 1;
  options.zero = options.shard = 0;
  return model::run_layout(model::make_plan(options, 1), *alone, batch,
                           static_cast<int>(base.steps));
}

// Cut over all ranks it leaves each of them the microbatches that layouts differ in, where eight
// sequences or more do that.
std::int64_t batch_for(int world) {
  std::int64_t batch = std::max(8, world);
  while (batch % world != 0 || batch % 4 != 0) ++batch;
  return batch;
}

// No layout is legal: says why the plainest is not, which is what the user asked for otherwise.
[[noreturn]] void refuse_all(const model::TrainOptions& base, int world) {
  if (base.batch % world != 0) {
    throw UsageError(
        fmt::format("--batch {} cannot be cut over {} ranks: legal are multiples of {}, or 0 to "
                    "choose one",
                    base.batch, world, world));
  }
  model::TrainOptions plainest = base;
  plainest.tp = plainest.pp = 1;
  plainest.dp = world;
  plainest.microbatches = 1;
  (void)model::make_plan(plainest, world);
  throw UsageError(fmt::format("no layout of {} ranks is legal for this model and batch", world));
}

struct Precision {
  std::string_view name;
  std::string_view dtype;
  std::string_view rounding;
  std::string_view gradients;
};
constexpr std::array kPrecisions = {Precision{"f64", "f64", "nearest", "auto"},
                                    Precision{"f32", "f32", "nearest", "auto"},
                                    Precision{"bf16", "bf16", "nearest", "auto"},
                                    Precision{"bf16-sr", "bf16", "stochastic", "auto"},
                                    Precision{"bf16-g16", "bf16", "nearest", "bf16"},
                                    Precision{"bf16-sr-g16", "bf16", "stochastic", "bf16"}};

void apply(const Precision& precision, model::TrainOptions& options) {
  options.dtype = precision.dtype;
  options.rounding = precision.rounding;
  options.gradients = precision.gradients;
}

std::vector<Precision> parse_precisions(const std::string& text) {
  std::vector<Precision> precisions;
  for (const std::string_view name : split(text, ',')) {
    const auto found = std::find_if(kPrecisions.begin(), kPrecisions.end(),
                                    [&](const Precision& p) { return p.name == trim(name); });
    if (found == kPrecisions.end())
      throw UsageError(
          fmt::format("--dtype '{}' is unknown; legal values: f64, f32, bf16, bf16-sr, bf16-g16, "
                      "bf16-sr-g16, joined by commas",
                      name));
    precisions.push_back(*found);
  }
  return precisions;
}

// The largest errors of each tensor over all layouts of one precision.
class Worst {
 public:
  void add(const model::LayoutError& error, const std::string& layout) {
    rows_.resize(error.tensors.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const model::LayoutError::OfTensor& found = error.tensors[i];
      Row& row = rows_[i];
      if (row.layout.empty() || found.gradient_ulp > row.error.gradient_ulp) row.layout = layout;
      row.error.name = found.name;
      row.error.gradient_ulp = std::max(row.error.gradient_ulp, found.gradient_ulp);
      row.error.weight_ulp = std::max(row.error.weight_ulp, found.weight_ulp);
    }
  }
  void print() const {
    const Table table({{"largest error of each tensor, in ULP of its largest element", 58, true},
                       {"gradient", 9},
                       {"weights", 9},
                       {"  of the gradient, in", 24, true}});
    fmt::print("\n{}", table.header());
    for (const Row& row : rows_)
      fmt::print("{}", table.row({row.error.name, fmt::format("{:.3g}", row.error.gradient_ulp),
                                  fmt::format("{:.3g}", row.error.weight_ulp), "  " + row.layout}));
  }

 private:
  struct Row {
    model::LayoutError::OfTensor error;
    std::string layout;
  };
  std::vector<Row> rows_;
};

// What a row says at its end.
std::string remark(const model::LayoutError& error, double bound) {
  if (error.bits_equal) return "same bits";
  if (error.largest() <= bound) return "first differing: " + error.first_divergent();
  const std::string above = error.first_above(bound);
  return "FAILED: " + (above.empty() ? "loss or norm" : "first above the bound: " + above);
}

void write_record(JsonLines& json, const std::string& layout, std::string_view precision, int ranks,
                  const model::LayoutError& error, bool holds) {
  JsonRecord record;
  double ulp = 0;
  for (const model::LayoutError::OfTensor& t : error.tensors)
    ulp = std::max(ulp, std::max(t.gradient_ulp, t.weight_ulp));
  record.add("layout", layout)
      .add("precision", std::string(precision))
      .add("ranks", ranks)
      .add("loss_error", error.loss)
      .add("norm_error", error.norm)
      .add("gradient_error", error.gradient)
      .add("weight_error", error.weight)
      .add("ulp_max", ulp)
      .add("worst_tensor", error.worst_tensor)
      .add("first_divergent", error.first_divergent())
      .add("bits_equal", error.bits_equal)
      .add("holds", holds);
  json.write(record);
}

// Says now and then how far a run of many layouts is, and when it will be done.
class Pace {
 public:
  explicit Pace(std::size_t layouts) : layouts_(layouts) {}
  void add() {
    ++done_;
    const Clock::time_point now = Clock::now();
    if (now - said_ < kSilence || done_ == layouts_) return;
    said_ = now;
    const double each_s =
        std::chrono::duration<double>(now - begin_).count() / static_cast<double>(done_);
    fmt::print("  {} of {} layouts, {} each, left {}\n", done_, layouts_, format_seconds(each_s),
               format_seconds(each_s * static_cast<double>(layouts_ - done_)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSilence{10};
  std::size_t layouts_;
  std::size_t done_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point said_ = begin_;
};

// All layouts in one precision; returns how many fail.
int run_precision(const model::TrainOptions& base, std::string_view precision,
                  std::vector<model::TrainOptions> layouts, comm::Communicator& world,
                  JsonLines& json) {
  const bool first_rank = world.rank() == 0;
  const model::TrainPlan first = model::make_plan(layouts.front(), world.world());
  const model::Batch batch = model::make_batch(first, base.seed);
  const model::LayoutRun reference = run_alone(base, world, batch);
  const double bound = model::layout_bound(base.dtype, base.gradients);
  const Table table({{fmt::format("{}", precision), 66, true},
                     {"loss", 9},
                     {"norm", 9},
                     {"gradients", 9},
                     {"weights", 9},
                     {"", 6, true}});
  if (first_rank) {
    fmt::print(
        "{} layouts of {} ranks, {} steps each in {}; largest relative differences to one rank, "
        "bound {:.1e}\n{}",
        layouts.size(), world.world(), base.steps, precision, bound, table.header());
  }
  int failed = 0;
  Worst worst;
  Pace pace(layouts.size());
  for (const model::TrainOptions& layout : layouts) {
    const model::LayoutRun run = model::run_layout(model::make_plan(layout, world.world()), world,
                                                   batch, static_cast<int>(base.steps));
    const model::LayoutError error = model::compare_runs(reference, run);
    const bool holds = error.largest() <= bound;
    if (!holds) ++failed;
    if (!first_rank) continue;
    const std::string name = model::name_of(layout);
    const auto shown = [](double value) { return fmt::format("{:.1e}", value); };
    fmt::print("{}", table.row({name, shown(error.loss), shown(error.norm), shown(error.gradient),
                                shown(error.weight), remark(error, bound)}));
    pace.add();
    std::fflush(stdout);
    worst.add(error, name);
    write_record(json, name, precision, world.world(), error, holds);
  }
  if (first_rank) worst.print();
  return failed;
}

int run_layouts(const Options& options) {
  const auto world = comm::Communicator::from_mpi(
      {.transport = options.transport, .timeout_s = options.timeout_s});
  std::vector<Precision> precisions;
  std::vector<model::TrainOptions> layouts;
  std::unique_ptr<JsonLines> json;
  model::TrainOptions base = options.train;
  if (base.batch == 0) base.batch = batch_for(world->world());
  agree(*world, [&] {
    precisions = parse_precisions(options.precisions);
    apply(precisions.front(), base);
    layouts = model::enumerate_every_layout(base, world->world(), {1, 2, 4});
    if (layouts.empty()) refuse_all(base, world->world());
    for (const model::TrainOptions& layout : layouts)
      require_train_memory(model::make_plan(layout, world->world()));
    json = std::make_unique<JsonLines>(world->rank() == 0 ? options.json : std::string());
  });
  if (options.sample > 0) {
    if (world->rank() == 0)
      fmt::print("a sample of {} layouts, drawn with seed {}\n", layouts.size(), base.seed);
    layouts = model::draw_layouts(layouts, static_cast<std::size_t>(options.sample), base.seed);
  }
  int failed = 0;
  for (const Precision& precision : precisions) {
    apply(precision, base);
    for (model::TrainOptions& layout : layouts) apply(precision, layout);
    failed += run_precision(base, precision.name, layouts, *world, *json);
  }
  json->keep();
  if (failed > 0)
    throw Error(fmt::format("{} of {} runs differ from one rank", failed,
                            layouts.size() * precisions.size()));
  return 0;
}

}  // namespace

Run declare_layouts(Args& args) {
  auto o = std::make_shared<Options>();
  o->train.model = "byte-tiny";
  o->train.seq = 32;
  o->train.batch = 0;
  o->train.steps = 3;
  args.option("--model", o->train.model, model_help());
  args.option("--batch", o->train.batch,
              "sequences of the whole step; 0: at least 8, a multiple of 4 and of the ranks",
              {.min = 0});
  args.option("--seq", o->train.seq, "tokens of a sequence", {.min = 1});
  args.option("--steps", o->train.steps, "steps of each layout", {.min = 1, .max = 1000});
  args.option(
      "--dtype", o->precisions,
      "f64, f32, bf16 with f32 masters, bf16-sr without (stochastic rounding), bf16-g16 and "
      "bf16-sr-g16 with gradients in bf16; one or several, joined by commas");
  args.option("--sample", o->sample, "so many layouts, drawn by the seed; 0: all", {.min = 0});
  args.option("--dropout", o->train.dropout, "share of activations dropped", {.min = 0, .max = 1});
  args.option("--seed", o->train.seed, "of weights, batch and sample");
  args.option("--transport", o->transport, transport_help());
  args.option("--timeout", o->timeout_s, "seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  args.option("--json", o->json, "write JSON lines to this file");
  return [o] { return run_layouts(*o); };
}

}  // namespace sinew::tools
