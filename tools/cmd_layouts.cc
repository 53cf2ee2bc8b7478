// layouts: trains every legal layout of these ranks for a few steps and compares each with one
// rank.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
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
  std::string precisions = "all";
  std::int64_t sample = 0;
  std::string fault;
  std::string transport = "auto";
  std::string json;
  double timeout_s = 60;
};

// Of --model: each layout for one of the law's models, or for every one.
constexpr std::string_view kTurns = "turns";
constexpr std::string_view kEach = "each";

bool is_law(const std::string& model) { return model == kTurns || model == kEach; }

// As rows show it.
std::string shown_name(const model::TrainOptions& layout) {
  for (const model::LawModel& of : model::law_models()) {
    if (of.json == layout.model) return fmt::format("{} {}", model::name_of(layout), of.name);
  }
  return model::name_of(layout);
}

// What one rank alone makes of a model: every rank by itself, in a communicator of one.
struct Reference {
  model::Batch batch;
  model::LayoutRun run;
};
Reference run_alone(const model::TrainOptions& layout, comm::Communicator& world) {
  const auto alone = world.split(world.rank(), 0);
  model::TrainOptions options = layout;
  options.tp = options.cp = options.pp = options.dp = 1;
  options.sequence_parallel = false;
  options.row_chunks = 1;
  options.chunks = 0;
  options.schedule = model::TrainOptions{}.schedule;
  options.recompute = model::TrainOptions{}.recompute;
  options.microbatches = 1;
  options.zero = options.shard = 0;
  options.reshard_after = model::TrainOptions{}.reshard_after;
  const model::TrainPlan plan = model::make_plan(options, 1);
  Reference reference{model::make_batch(plan, options.seed), {}};
  reference.run = model::run_layout(plan, *alone, reference.batch, static_cast<int>(options.steps));
  return reference;
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
  if (is_law(base.model)) plainest.model = model::law_models().front().json;
  plainest.tp = plainest.pp = 1;
  plainest.dp = world;
  plainest.microbatches = 1;
  (void)model::make_plan(plainest, world);
  throw UsageError(
      fmt::format("no layout of {} is legal for this model and batch", counted(world, "rank")));
}

std::vector<model::LawPrecision> parse_precisions(const std::string& text) {
  const auto all = model::law_precisions();
  if (text == "all") return {all.begin(), all.end()};
  std::vector<model::LawPrecision> precisions;
  for (const std::string_view name : split(text, ',')) {
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const model::LawPrecision& p) { return p.name == trim(name); });
    if (found == all.end()) {
      throw UsageError(
          fmt::format("--dtype '{}' is unknown; legal values: all, or some of f64, f32, bf16, "
                      "bf16-sr, bf16-g16, bf16-sr-g16, joined by commas",
                      name));
    }
    precisions.push_back(*found);
  }
  return precisions;
}

std::vector<model::TrainOptions> find_layouts(const model::TrainOptions& base, int world) {
  const std::vector<std::int64_t> microbatches = {1, 2, 4};
  if (base.model == kTurns) return model::enumerate_in_turns(base, world, microbatches, base.seed);
  if (base.model != kEach) return model::enumerate_every_layout(base, world, microbatches);
  std::vector<model::TrainOptions> layouts;
  for (const model::LawModel& of : model::law_models()) {
    model::TrainOptions options = base;
    options.model = of.json;
    for (model::TrainOptions& layout : model::enumerate_every_layout(options, world, microbatches))
      layouts.push_back(std::move(layout));
  }
  return layouts;
}

// The largest errors of each tensor over all layouts of one precision.
class Worst {
 public:
  void add(const model::LayoutError& error, const std::string& layout) {
    for (const model::LayoutError::OfTensor& found : error.tensors) {
      Row& row = row_of(found.name);
      if (row.layout.empty() || found.gradient_ulp > row.error.gradient_ulp) row.layout = layout;
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
  // Tensors of that name are one, whatever the model.
  Row& row_of(const std::string& name) {
    const auto found = std::find_if(rows_.begin(), rows_.end(),
                                    [&](const Row& row) { return row.error.name == name; });
    if (found != rows_.end()) return *found;
    rows_.push_back({});
    rows_.back().error.name = name;
    return rows_.back();
  }
  std::vector<Row> rows_;
};

// A layout that trains the model of one rank; or with a fault, one whose errors name it first.
bool holds(const model::LayoutError& error, double bound, const std::string& fault) {
  return fault.empty() ? error.largest() <= bound : error.first_above(bound) == fault;
}

// What a row says at its end.
std::string remark(const model::LayoutError& error, double bound, const std::string& fault) {
  if (!fault.empty()) {
    const std::string first = error.first_above(bound);
    return holds(error, bound, fault) ? "found"
                                      : "MISSED: names " + (first.empty() ? "none" : first);
  }
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

// One layout beside one rank's run of its model, which `references` keeps.
class Comparison {
 public:
  explicit Comparison(comm::Communicator& world) : world_(world) {}
  model::LayoutError run(const model::TrainOptions& layout, const std::string& fault) {
    auto reference = references_.find(layout.model);
    if (reference == references_.end())
      reference = references_.emplace(layout.model, run_alone(layout, world_)).first;
    model::TrainPlan plan = model::make_plan(layout, world_.world());
    plan.fault = fault;
    const model::LayoutRun found =
        model::run_layout(plan, world_, reference->second.batch, static_cast<int>(layout.steps));
    return model::compare_runs(reference->second.run, found);
  }

 private:
  comm::Communicator& world_;
  std::map<std::string, Reference> references_;  // by model
};

// What all of it will take, by the time of a few: said before, since it may be an hour.
void say_how_long(const std::vector<model::TrainOptions>& layouts, std::size_t precisions,
                  comm::Communicator& world) {
  constexpr std::size_t kTried = 3;
  Comparison comparison(world);
  const std::vector<model::TrainOptions> tried = model::draw_layouts(layouts, kTried, 1);
  for (const model::TrainOptions& layout : tried)
    static_cast<void>(comparison.run(layout, ""));  // the models' runs alone, too
  const auto begin = std::chrono::steady_clock::now();
  for (const model::TrainOptions& layout : tried) static_cast<void>(comparison.run(layout, ""));
  const double each_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
      static_cast<double>(tried.size());
  const double runs = static_cast<double>(layouts.size() * precisions);
  if (world.rank() != 0) return;
  fmt::print(stderr, "layouts: {} in {} take about {}; --sample N runs N of them\n",
             counted(static_cast<std::int64_t>(layouts.size()), "layout"),
             counted(static_cast<std::int64_t>(precisions), "precision"),
             format_seconds(runs * each_s));
}

// All layouts in one precision; returns how many fail.
int run_precision(const model::LawPrecision& precision, std::vector<model::TrainOptions> layouts,
                  comm::Communicator& world, const std::string& fault, JsonLines& json) {
  const bool first_rank = world.rank() == 0;
  for (model::TrainOptions& layout : layouts) precision.apply(layout);
  const std::int64_t steps = layouts.front().steps;
  const double bound =
      model::layout_bound(std::string(precision.dtype), std::string(precision.gradients));
  const Table table({{std::string(precision.name), 78, true},
                     {"loss", 9},
                     {"norm", 9},
                     {"gradients", 9},
                     {"weights", 9},
                     {"", 6, true}});
  if (first_rank) {
    fmt::print(
        "{} of {}, {} each in {}; largest relative differences to one rank, bound {:.1e}\n{}",
        counted(std::ssize(layouts), "layout"), counted(world.world(), "rank"),
        counted(steps, "step"), precision.name, bound, table.header());
  }
  int failed = 0;
  Worst worst;
  Pace pace(layouts.size());
  Comparison comparison(world);
  for (const model::TrainOptions& layout : layouts) {
    const model::LayoutError error = comparison.run(layout, fault);
    const bool good = holds(error, bound, fault);
    if (!good) ++failed;
    if (!first_rank) continue;
    const std::string name = shown_name(layout);
    const auto shown = [](double value) { return fmt::format("{:.1e}", value); };
    fmt::print("{}", table.row({name, shown(error.loss), shown(error.norm), shown(error.gradient),
                                shown(error.weight), remark(error, bound, fault)}));
    pace.add();
    std::fflush(stdout);
    worst.add(error, name);
    write_record(json, name, precision.name, world.world(), error, good);
  }
  if (first_rank) {
    worst.print();
    fmt::print("\n{} of {} layouts in {} {}\n\n", layouts.size() - static_cast<std::size_t>(failed),
               layouts.size(), precision.name,
               fault.empty() ? "train the model of one rank"
                             : fmt::format("show first that the gradient of {} is wrong", fault));
  }
  return failed;
}

// Those whose model has the tensor.
void keep_faulty(std::vector<model::TrainOptions>& layouts, const std::string& tensor) {
  std::map<std::string, bool> has;  // by model
  std::string names;
  for (const model::TrainOptions& layout : layouts) {
    const auto [model, is_new] = has.emplace(layout.model, false);
    if (!is_new) continue;
    for (const std::string& name : model::parameter_names(model::load_config(layout.model))) {
      model->second = model->second || name == tensor;
      if (has.size() == 1) names += (names.empty() ? "" : ", ") + name;
    }
  }
  std::erase_if(layouts, [&](const model::TrainOptions& layout) { return !has.at(layout.model); });
  if (layouts.empty())
    throw UsageError(fmt::format("--fault '{}': no model here has such a tensor; legal values: {}",
                                 tensor, names));
}

int run_layouts(const Options& options, const Args& args) {
  const auto world = comm::Communicator::from_mpi(
      {.transport = options.transport, .timeout_s = options.timeout_s});
  require_same_options(*world, args);
  std::vector<model::LawPrecision> precisions;
  std::vector<model::TrainOptions> layouts;
  std::unique_ptr<JsonLines> json;
  model::TrainOptions base = options.train;
  const model::TrainOptions law = model::law_options(world->world());
  if (base.batch == 0) base.batch = law.batch;
  if (base.seq == 0) base.seq = law.seq;
  agree(*world, [&] {
    precisions = parse_precisions(options.precisions);
    precisions.front().apply(base);
    layouts = find_layouts(base, world->world());
    if (layouts.empty()) refuse_all(base, world->world());
    if (!options.fault.empty()) keep_faulty(layouts, options.fault);
    for (const model::TrainOptions& layout : layouts)
      require_train_memory(model::make_plan(layout, world->world()));
    json = std::make_unique<JsonLines>(world->rank() == 0 ? options.json : std::string());
  });
  if (options.sample > 0) {
    if (world->rank() == 0)
      fmt::print("a sample of {} layouts, drawn with seed {}\n", layouts.size(), base.seed);
    layouts = model::draw_layouts(layouts, static_cast<std::size_t>(options.sample), base.seed);
  } else {
    say_how_long(layouts, precisions.size(), *world);
  }
  int failed = 0;
  for (const model::LawPrecision& precision : precisions)
    failed += run_precision(precision, layouts, *world, options.fault, *json);
  json->keep();
  if (failed > 0)
    throw Error(fmt::format(
        "{} of {} runs {}", failed, layouts.size() * precisions.size(),
        options.fault.empty() ? "differ from one rank" : "do not name the wrong gradient first"));
  return 0;
}

}  // namespace

Run declare_layouts(Args& args) {
  auto o = std::make_shared<Options>();
  o->train = model::law_options(1);
  o->train.model = kTurns;
  o->train.seq = 0;
  o->train.batch = 0;
  args.option("--model", o->train.model,
              "turns: each layout trains one of five small models, the next in turn (tied and "
              "untied heads, grouped queries, GPT-2's vocabulary); each: every one of them; or " +
                  model_help());
  args.option("--batch", o->train.batch,
              "sequences of the whole step; 0: at least 8, a multiple of 4 and of the ranks",
              {.min = 0});
  args.option("--seq", o->train.seq,
              "tokens of a sequence; 0: at least 8, two pieces for each of the ranks", {.min = 0});
  args.option("--steps", o->train.steps, "steps of each layout", {.min = 1, .max = 1000});
  args.option("--dtype", o->precisions,
              "all, or f64, f32, bf16 with f32 masters, bf16-sr without (stochastic rounding), "
              "bf16-g16 and "
              "bf16-sr-g16 with gradients in bf16; one or several, joined by commas");
  args.option("--sample", o->sample, "so many layouts, drawn by the seed; 0: all", {.min = 0});
  args.option("--fault", o->fault,
              "a tensor, as h.1.mlp.c_fc.weight, whose gradient one rank is made to find twice as "
              "large: a test of this test, passed when every layout names that tensor first");
  args.option("--clip", o->train.clip, "largest norm of the gradient; 0: none", {.min = 0});
  args.option("--dropout", o->train.dropout, "share of activations dropped", {.min = 0, .max = 1});
  args.option("--seed", o->train.seed, "of weights, batch and sample");
  args.option("--transport", o->transport, transport_help());
  args.option("--timeout", o->timeout_s, "seconds a rank waits for another",
              {.min = 0.1, .max = 86400});
  args.option("--json", o->json, "write JSON lines to this file");
  return [o, &args] { return run_layouts(*o, args); };
}

}  // namespace sinew::tools
