// layouts: trains every legal layout of these ranks for a few steps and compares each with one
// rank.
#include <fmt/format.h>

#include <memory>

#include "model/layouts.h"
#include "sched/base/error.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/session.h"
#include "tools/table.h"
#include "tools/train_options.h"

namespace sinew::tools {
namespace {

struct Options {
  model::TrainOptions train;
  std::string json;
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

// No layout is legal: says why the plainest is not, which is what the user asked for otherwise.
[[noreturn]] void refuse_all(const model::TrainOptions& base, int world) {
  model::TrainOptions plainest = base;
  plainest.tp = plainest.pp = 1;
  plainest.dp = world;
  plainest.microbatches = 1;
  (void)model::make_plan(plainest, world);
  throw UsageError(fmt::format("no layout of {} ranks is legal for this model and batch", world));
}

int run_layouts(const Options& options) {
  const auto world = comm::Communicator::from_mpi({});
  const bool first_rank = world->rank() == 0;
  std::vector<model::TrainOptions> layouts;
  std::unique_ptr<JsonLines> json;
  agree(*world, [&] {
    layouts = model::enumerate_layouts(options.train, world->world(), {1, 2, 4});
    for (model::TrainOptions& layout :
         model::enumerate_sequence_layouts(options.train, world->world()))
      layouts.push_back(std::move(layout));
    if (layouts.empty()) refuse_all(options.train, world->world());
    json = std::make_unique<JsonLines>(first_rank ? options.json : std::string());
  });
  const model::TrainPlan first = model::make_plan(layouts.front(), world->world());
  const model::Batch batch = model::make_batch(first, options.train.seed);
  const model::LayoutRun reference = run_alone(options.train, *world, batch);
  const double bound = model::layout_bound(options.train.dtype);

  const Table table({{"layout", 46, true},
                     {"loss", 9},
                     {"norm", 9},
                     {"gradients", 9},
                     {"weights", 9},
                     {"", 6, true}});
  if (first_rank) {
    fmt::print(
        "{} layouts of {} ranks, {} steps each in {}; largest relative differences to one rank, "
        "bound {:.1e}\n{}",
        layouts.size(), world->world(), options.train.steps, options.train.dtype, bound,
        table.header());
  }
  int failed = 0;
  for (const model::TrainOptions& layout : layouts) {
    const model::LayoutRun run = model::run_layout(model::make_plan(layout, world->world()), *world,
                                                   batch, static_cast<int>(options.train.steps));
    const model::LayoutError error = model::compare_runs(reference, run);
    const bool holds = error.largest() <= bound;
    if (!holds) ++failed;
    if (!first_rank) continue;
    const auto shown = [](double value) { return fmt::format("{:.1e}", value); };
    fmt::print("{}", table.row({model::name_of(layout), shown(error.loss), shown(error.norm),
                                shown(error.gradient), shown(error.weight),
                                holds ? "" : "FAILED: " + error.worst_tensor}));
    std::fflush(stdout);
    JsonRecord record;
    record.add("layout", model::name_of(layout))
        .add("ranks", world->world())
        .add("loss_error", error.loss)
        .add("norm_error", error.norm)
        .add("gradient_error", error.gradient)
        .add("weight_error", error.weight)
        .add("bits_equal", error.bits_equal)
        .add("holds", holds);
    json->write(record);
  }
  if (failed > 0)
    throw Error(fmt::format("{} of {} layouts differ from one rank", failed, layouts.size()));
  return 0;
}

}  // namespace

Run declare_layouts(Args& args) {
  auto o = std::make_shared<Options>();
  o->train.model = "byte-tiny";
  o->train.seq = 32;
  o->train.steps = 3;
  o->train.dtype = "f64";
  args.option("--model", o->train.model, "name of a model, or the path of a .json file");
  args.option("--batch", o->train.batch, "sequences of the whole step", {.min = 1});
  args.option("--seq", o->train.seq, "tokens of a sequence", {.min = 1});
  args.option("--steps", o->train.steps, "steps of each layout", {.min = 1, .max = 1000});
  args.option("--dtype", o->train.dtype, "f32, f64, or bf16 with f32 masters and gradients");
  args.option("--dropout", o->train.dropout, "share of activations dropped", {.min = 0, .max = 1});
  args.option("--seed", o->train.seed, "of weights and batch");
  args.option("--json", o->json, "write JSON lines to this file");
  return [o] { return run_layouts(*o); };
}

}  // namespace sinew::tools
