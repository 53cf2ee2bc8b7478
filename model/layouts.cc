#include "model/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/philox.h"

namespace sinew::model {

namespace {

constexpr std::uint32_t kBatchPurpose = 0xBA7C4;

bool legal(const TrainOptions& options, int world) {
  try {
    static_cast<void>(make_plan(options, world));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// Every TP x CP x PP x DP of the world.
std::vector<TrainOptions> splits_of(const TrainOptions& base, int world) {
  std::vector<TrainOptions> splits;
  for (int tp = 1; tp <= world; ++tp) {
    for (int cp = 1; tp * cp <= world; ++cp) {
      for (int pp = 1; tp * cp * pp <= world; ++pp) {
        if (world % (tp * cp * pp) != 0) continue;
        TrainOptions split = base;
        split.tp = tp;
        split.cp = cp;
        split.pp = pp;
        split.dp = world / (tp * cp * pp);
        splits.push_back(split);
      }
    }
  }
  return splits;
}

struct Difference {
  double largest = 0;  // max |a - b|
  double scale = 0;    // max |a|
  // Of a scale that is at least `least`.
  [[nodiscard]] double relative(double least = 0) const {
    return largest == 0 ? 0 : largest / std::max(scale, least);
  }
  // In units in the last place of the scale.
  [[nodiscard]] double ulp(int digits) const {
    if (largest == 0 || scale == 0) return largest == 0 ? 0 : INFINITY;
    return largest / std::ldexp(1.0, std::ilogb(scale) + 1 - digits);
  }
};

// The spread of initial weights. A bias starts at zero and has after few steps nothing but updates:
// its error is told beside what other weights are.
constexpr double kWeightScale = 0.02;

Difference difference(const std::vector<double>& a, const std::vector<double>& b) {
  CHECK_EQ(a.size(), b.size());
  Difference result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    result.scale = std::max(result.scale, std::abs(a[i]));
    // A NaN on either side must not pass for small.
    const double d = std::abs(a[i] - b[i]);
    result.largest = std::isnan(d) ? INFINITY : std::max(result.largest, d);
  }
  return result;
}

double relative(const std::vector<double>& a, const std::vector<double>& b, bool& bits_equal) {
  const Difference found = difference(a, b);
  bits_equal = bits_equal && found.largest == 0;
  return found.relative();
}

}  // namespace

namespace {

struct Cut {
  int zero = 0;
  int shard = 0;
  const char* reshard_after = "forward";
  void apply(TrainOptions& options) const {
    options.zero = zero;
    options.shard = shard;
    options.reshard_after = reshard_after;
  }
};

// What ZeRO may do with so many data ranks.
std::vector<Cut> cuts_of(int ranks) {
  std::vector<Cut> cuts{{0, 0}};
  for (int zero = 1; zero <= 3 && ranks > 1; ++zero) {
    cuts.push_back({zero, 0});
    for (int shard = 1; shard < ranks; ++shard) {
      if (ranks % shard == 0) cuts.push_back({zero, shard});
    }
  }
  for (std::size_t i = 0, before = cuts.size(); i < before; ++i) {
    if (cuts[i].zero == 3) cuts.push_back({3, cuts[i].shard, "backward"});
  }
  return cuts;
}

}  // namespace

std::vector<TrainOptions> enumerate_layouts(const TrainOptions& base, int world,
                                            const std::vector<std::int64_t>& microbatches) {
  std::vector<TrainOptions> layouts;
  for (int tp = 1; tp <= world; ++tp) {
    for (int pp = 1; tp * pp <= world; ++pp) {
      if (world % (tp * pp) != 0) continue;
      const int dp = world / (tp * pp);
      for (const Cut& cut : cuts_of(dp)) {
        for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
          // Without a pipeline all schedules are one.
          if (pp == 1 && schedule.name != sched::pipe_algorithms().front().name) continue;
          for (const std::int64_t m : microbatches) {
            TrainOptions options = base;
            options.tp = tp;
            options.pp = pp;
            options.dp = dp;
            cut.apply(options);
            options.schedule = schedule.name;
            options.microbatches = m;
            if (legal(options, world)) layouts.push_back(options);
          }
        }
      }
    }
  }
  return layouts;
}

namespace {

// The ways to share sequences within one split.
std::vector<TrainOptions> sequence_variants(const TrainOptions& split) {
  std::vector<TrainOptions> variants;
  for (const bool sequence_parallel : {false, true}) {
    if (sequence_parallel && split.tp == 1) continue;
    for (const char* mode : {"zigzag", "contiguous", "striped", "ulysses"}) {
      TrainOptions options = split;
      options.sequence_parallel = sequence_parallel;
      options.cp_mode = mode;
      if (sequence_parallel || split.cp > 1) variants.push_back(options);
      if (split.cp == 1) break;  // without context parallelism all modes are one
    }
  }
  return variants;
}

}  // namespace

std::vector<TrainOptions> enumerate_sequence_layouts(const TrainOptions& base, int world) {
  std::vector<TrainOptions> layouts;
  int number = 0;  // of the layout
  for (const TrainOptions& split : splits_of(base, world)) {
    for (TrainOptions& options : sequence_variants(split)) {
      // A factor and tp: no axis sees the same cuts only.
      const std::vector<Cut> cuts = cuts_of(split.cp * split.dp);
      const Cut chosen = cuts[static_cast<std::size_t>(3 * number++ + split.tp) % cuts.size()];
      chosen.apply(options);
      if (!legal(options, world)) continue;
      options.microbatches = make_plan(options, world).options.microbatches;
      layouts.push_back(options);
    }
  }
  return layouts;
}

namespace {

// Schedules with each number of chunks they may have here; without a pipeline all are one.
std::vector<TrainOptions> pipeline_variants(const TrainOptions& split, std::int64_t layers) {
  std::vector<TrainOptions> variants;
  for (const sched::PipeAlgorithm& schedule : sched::pipe_algorithms()) {
    TrainOptions options = split;
    options.schedule = schedule.name;
    options.chunks = 0;
    variants.push_back(options);
    if (split.pp == 1) break;
    if (schedule.name != "interleaved") continue;
    for (int chunks = schedule.default_chunks + 1; chunks * split.pp <= layers; ++chunks) {
      options.chunks = chunks;
      variants.push_back(options);
    }
  }
  return variants;
}

// Each of `all` made into those that `vary` makes of it.
template <typename Vary>
std::vector<TrainOptions> varied(const std::vector<TrainOptions>& all, Vary&& vary) {
  std::vector<TrainOptions> result;
  for (const TrainOptions& one : all) {
    for (TrainOptions& options : vary(one)) result.push_back(std::move(options));
  }
  return result;
}

}  // namespace

std::vector<TrainOptions> enumerate_every_layout(const TrainOptions& base, int world,
                                                 const std::vector<std::int64_t>& microbatches) {
  const std::int64_t layers = load_config(base.model).layers;
  std::vector<TrainOptions> all = splits_of(base, world);
  all = varied(all, [](const TrainOptions& split) {
    std::vector<TrainOptions> variants = sequence_variants(split);
    if (split.cp == 1) variants.push_back(split);  // shares no sequences
    return variants;
  });
  all = varied(all, [&](const TrainOptions& split) { return pipeline_variants(split, layers); });
  all = varied(all, [&](const TrainOptions& split) {
    std::vector<TrainOptions> variants;
    for (const std::int64_t m : microbatches) {
      variants.push_back(split);
      variants.back().microbatches = m;
    }
    return variants;
  });
  // What follows changes nothing about legality.
  std::erase_if(all, [&](const TrainOptions& options) { return !legal(options, world); });
  all = varied(all, [](const TrainOptions& split) {
    std::vector<TrainOptions> variants;
    for (const Cut& cut : cuts_of(split.cp * split.dp)) {
      variants.push_back(split);
      cut.apply(variants.back());
    }
    return variants;
  });
  all = varied(all, [](const TrainOptions& split) {
    std::vector<TrainOptions> variants;
    for (const char* recompute : {"none", "selective", "full"}) {
      variants.push_back(split);
      variants.back().recompute = recompute;
    }
    return variants;
  });
  // Products in row chunks: every second layout that may.
  std::size_t number = 0;
  for (TrainOptions& options : all) {
    if (!options.sequence_parallel || number++ % 2 == 0) continue;
    options.row_chunks = 2;
    if (!legal(options, world)) options.row_chunks = 1;
  }
  return all;
}

std::span<const LawModel> law_models() {
  // No number of ranks divides the vocabularies.
  static constexpr std::array kModels = {
      LawModel{"gpt2", R"({"layers": 4, "heads": 4, "channels": 16, "vocabulary": 53,
                           "max_time": 32})"},
      LawModel{"gpt2-untied", R"({"layers": 4, "heads": 4, "channels": 16, "vocabulary": 53,
                                  "max_time": 32, "tied": false})"},
      LawModel{"llama", R"({"family": "llama", "layers": 4, "heads": 4, "kv_heads": 2,
                            "channels": 16, "hidden": 24, "vocabulary": 53, "max_time": 32,
                            "tied": false})"},
      LawModel{"llama-tied", R"({"family": "llama", "layers": 4, "heads": 4, "kv_heads": 1,
                                 "channels": 16, "hidden": 24, "vocabulary": 53, "max_time": 32})"},
      LawModel{"vocabulary", R"({"layers": 4, "heads": 4, "channels": 4, "vocabulary": 50257,
                                 "max_time": 32})"},
  };
  return kModels;
}

void LawPrecision::apply(TrainOptions& options) const {
  options.dtype = dtype;
  options.rounding = rounding;
  options.gradients = gradients;
}

std::span<const LawPrecision> law_precisions() {
  static constexpr std::array kPrecisions = {
      LawPrecision{"f64", "f64", "nearest", "auto"},
      LawPrecision{"f32", "f32", "nearest", "auto"},
      LawPrecision{"bf16", "bf16", "nearest", "auto"},
      LawPrecision{"bf16-sr", "bf16", "stochastic", "auto"},
      LawPrecision{"bf16-g16", "bf16", "nearest", "bf16"},
      LawPrecision{"bf16-sr-g16", "bf16", "stochastic", "bf16"}};
  return kPrecisions;
}

TrainOptions law_options(int world) {
  TrainOptions options;
  options.model = law_models().front().json;
  options.batch = std::max(8, world);
  while (options.batch % world != 0 || options.batch % 4 != 0) ++options.batch;
  options.seq = 8;
  while (options.seq % (2 * world) != 0) ++options.seq;
  options.steps = kLawSteps;
  options.lr = 3e-3;
  options.clip = 0.05;
  options.dropout = 0.1;
  options.threads = 1;
  return options;
}

std::vector<TrainOptions> enumerate_in_turns(const TrainOptions& base, int world,
                                             const std::vector<std::int64_t>& microbatches,
                                             std::uint64_t first) {
  const std::span<const LawModel> models = law_models();
  TrainOptions plainest = base;
  plainest.model = models.front().json;
  std::vector<TrainOptions> layouts = enumerate_every_layout(plainest, world, microbatches);
  std::uint64_t turn = first;
  for (TrainOptions& options : layouts) {
    do {
      options.model = models[turn++ % models.size()].json;
    } while (!legal(options, world));
  }
  return layouts;
}

std::vector<TrainOptions> draw_layouts(std::vector<TrainOptions> layouts, std::size_t count,
                                       std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::shuffle(layouts.begin(), layouts.end(), random);
  layouts.resize(std::min(count, layouts.size()));
  return layouts;
}

std::string name_of(const TrainOptions& o) {
  const std::string chunks = o.chunks > 0 ? fmt::format(" v{}", o.chunks) : "";
  const std::string recompute = o.recompute == "none" ? "" : " recompute " + o.recompute;
  const std::string context = o.cp > 1 ? fmt::format(" cp{} {}", o.cp, o.cp_mode) : "";
  const std::string shard = o.shard > 0 ? fmt::format("/{}", o.shard) : "";
  const std::string kept = o.reshard_after == "backward" ? " kept" : "";
  const std::string rows = !o.sequence_parallel ? ""
                           : o.row_chunks == 1  ? " sp"
                                                : fmt::format(" sp/{}", o.row_chunks);
  return fmt::format("tp{}{}{} pp{} dp{} zero{}{}{} {}{} m{}{}", o.tp, rows, context, o.pp, o.dp,
                     o.zero, shard, kept, o.schedule, chunks, o.microbatches, recompute);
}

Batch make_batch(const TrainPlan& plan, std::uint64_t seed) {
  const Philox random(seed, kBatchPurpose);
  Batch batch;
  const auto time = static_cast<std::uint64_t>(plan.options.seq);
  const auto count = static_cast<std::uint64_t>(plan.options.batch) * time;
  const auto vocabulary = static_cast<std::uint64_t>(plan.config.vocabulary);
  std::uint64_t end = 0;  // of the sequence's loss
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto words = random.words(i);
    // Half of the sequences have their full length.
    if (i % time == 0) end = std::min(time, words[3] % (2 * time));
    // The first target of all has a loss: there is none to divide by else.
    const bool has_loss = i == 0 || (i % time < end && words[2] % 8 != 0);
    batch.tokens.push_back(static_cast<std::int32_t>(words[0] % vocabulary));
    batch.targets.push_back(has_loss ? static_cast<std::int32_t>(words[1] % vocabulary) : -1);
  }
  return batch;
}

LayoutRun run_layout(const TrainPlan& plan, comm::Communicator& world, const Batch& batch,
                     int steps) {
  TrainPlan quiet = plan;
  quiet.options.eps = std::max(plan.options.eps, noise_epsilon(plan.options.dtype));
  const auto trainer = Trainer::create(quiet, world);
  LayoutRun run;
  for (int step = 0; step < steps; ++step) {
    const StepMetrics metrics = trainer->step_on(batch.tokens.data(), batch.targets.data());
    run.losses.push_back(metrics.loss);
    run.norms.push_back(metrics.gradient_norm);
    if (step == 0) run.gradients = trainer->gather_gradients();
  }
  run.weights = trainer->gather_weights();
  run.names = parameter_names(plan.config);
  run.digits = plan.options.dtype == "f64" ? 53 : plan.options.dtype == "f32" ? 24 : 8;
  return run;
}

double LayoutError::largest() const {
  return std::max(std::max(loss, norm), std::max(gradient, weight));
}

LayoutError compare_runs(const LayoutRun& reference, const LayoutRun& run) {
  LayoutError error;
  error.loss = relative(reference.losses, run.losses, error.bits_equal);
  error.norm = relative(reference.norms, run.norms, error.bits_equal);
  std::vector<std::string> names = reference.names;
  for (const auto& [name, tensor] : reference.gradients) {
    if (reference.names.empty()) names.push_back(name);
  }
  CHECK(!names.empty());  // else nothing would be compared
  for (const std::string& name : names) {
    const Difference gradient = difference(reference.gradients.at(name), run.gradients.at(name));
    const Difference weight = difference(reference.weights.at(name), run.weights.at(name));
    error.bits_equal = error.bits_equal && gradient.largest == 0 && weight.largest == 0;
    if (gradient.relative() > error.gradient || error.worst_tensor.empty())
      error.worst_tensor = name;
    error.gradient = std::max(error.gradient, gradient.relative());
    error.weight = std::max(error.weight, weight.relative(kWeightScale));
    error.tensors.push_back({name, gradient.ulp(reference.digits), weight.ulp(reference.digits),
                             gradient.relative(), weight.relative(kWeightScale)});
  }
  return error;
}

namespace {

// The name of the first tensor for which it holds; empty when it holds for none.
template <typename Holds>
std::string first_of(const std::vector<LayoutError::OfTensor>& tensors, Holds&& holds) {
  const auto first = std::find_if(tensors.begin(), tensors.end(), holds);
  return first == tensors.end() ? "" : first->name;
}

}  // namespace

std::string LayoutError::first_divergent() const {
  return first_of(tensors, [](const OfTensor& t) { return t.gradient_ulp > 0; });
}

std::string LayoutError::first_above(double bound) const {
  const std::string name = first_of(tensors, [&](const OfTensor& t) { return t.gradient > bound; });
  return name.empty() ? first_of(tensors, [&](const OfTensor& t) { return t.weight > bound; })
                      : name;
}

// Layouts differ in the order of sums only. Reordering a sum of n terms moves it by at most n u
// times the sum of magnitudes; here n is at most a few thousand (tokens times channels), the random
// signs make it sqrt(n), and a gradient passes a few dozen such sums between the loss and its
// tensor: about 1000 u. AdamW's update of an element moves by the gradient's error over epsilon at
// most, in learning rates, and those are small beside a weight, for which a bias counts with the
// spread of initial weights. f64 is held to the 1e-10 that users expect of it.
//
// bf16 sums in f32 and rounds each result once, to u = 2^-9, so that what counts is how many
// results lie between a weight and its gradient: about 20 a layer, forward and backward, and 6 at
// the ends. Two layouts round them differently (tensor ranks round their parts of a sum, another
// order of an f32 sum ends on the other side of a tie). The roundings are independent: sqrt(n) u;
// the largest of a tensor's thousands of elements lies four deviations out. For models of up to 4
// layers, n = 86.
//
// bf16 gradients round more: each of up to 4 microbatches where it leaves its rank and where it is
// added, the sum over ranks and that over their groups, the two shares of a tied table, and partial
// sums over tensor ranks: 12 results more.
double layout_bound(const std::string& dtype, const std::string& gradients) {
  if (dtype == "f64") return 1e-10;
  if (dtype == "bf16") return 4 * std::sqrt(20.0 * 4 + 6 + (gradients == "bf16" ? 12 : 0)) * 0x1p-9;
  return 1000 * 0x1p-24;
}

double noise_epsilon(const std::string& dtype) { return dtype == "bf16" ? 0.1 : 1e-4; }

}  // namespace sinew::model
