// What a run reports: predictions equal counts in every layout, files hold what was said.
#include "model/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/layouts.h"
#include "model/metrics_file.h"
#include "sched/plan/planner.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using nlohmann::json;
using test::run_ranks;
using test::ScratchDirectory;

// Bytes of memory, calls and payloads are exact; bytes sent too up to the remainder of cutting an
// array into as many pieces as there are ranks: at most one element a rank, call and phase.
TEST(Report, PredictionsEqualCountsOnEveryRankOfEveryLayout) {
  const ScratchDirectory directory;
  TrainOptions base;
  base.model = test::write_model(
      directory, {.layers = 3, .heads = 4, .channels = 32, .vocabulary = 53, .max_time = 8});
  base.batch = 12;
  base.seq = 8;
  base.threads = 1;
  for (const int world : {1, 2, 3, 4}) {
    // Every fifth and the last: all axes, schedules and ZeRO stages take turns.
    const std::vector<TrainOptions> all_layouts = enumerate_layouts(base, world, {3});
    std::vector<TrainOptions> layouts;
    for (std::size_t i = 0; i < all_layouts.size(); i += world < 3 ? 1 : 5) {
      layouts.push_back(all_layouts[i]);
      if (layouts.size() % 4 == 0) layouts.back().dtype = "bf16";
      if (layouts.size() % 8 == 0) layouts.back().rounding = "stochastic";
      if (layouts.size() % 12 < 8 && layouts.back().dtype == "bf16")
        layouts.back().gradients = "bf16";
    }
    for (const TrainOptions& options : all_layouts) {
      if (options.shard > 0 && options.dp == 4) layouts.push_back(options);
    }
    int kept = 0;
    for (const TrainOptions& options : all_layouts) {
      if (options.reshard_after != "backward" || kept++ % 2 == 1) continue;
      layouts.push_back(options);
      if (kept % 4 == 0) layouts.back().dtype = "bf16";
    }
    for (const char* recompute : {"selective", "full", "full,none,selective"}) {
      base.recompute = recompute;
      const std::vector<TrainOptions> all = enumerate_layouts(base, world, {3});
      layouts.push_back(all.back());
      layouts.push_back(all[all.size() / 2]);
    }
    base.recompute = "none";
    for (const char* family : {"gpt2", "llama"}) {
      TrainOptions shared = base;
      shared.microbatches = 3;
      shared.model = directory.write(
          std::string(family) + ".json",
          std::string(R"({"layers": 3, "heads": 4, "channels": 32, "vocabulary": 53,)") +
              (family[0] == 'l' ? R"( "kv_heads": 2, "tied": false,)" : "") +
              R"( "max_time": 8, "family": ")" + family + "\"}");
      for (TrainOptions options : test::sample(enumerate_sequence_layouts(shared, world), 12)) {
        if (layouts.size() % 3 == 0) options.recompute = "full";
        if (layouts.size() % 2 == 0) options.dtype = "bf16";
        if (layouts.size() % 4 == 0) options.gradients = "bf16";
        if (options.sequence_parallel) options.row_chunks = 2;
        layouts.push_back(options);
      }
    }
    for (const TrainOptions& options : layouts) {
      run_ranks(world, [&](comm::Communicator& ranks) {
        const TrainPlan plan = make_plan(options, world);
        const auto trainer = Trainer::create(plan, ranks);
        const Batch batch = make_batch(plan, 1);
        constexpr int kSteps = 2;
        for (int i = 0; i < kSteps; ++i)
          static_cast<void>(trainer->step_on(batch.tokens.data(), batch.targets.data()));
        const Summary summary = trainer->summary();
        double calls = 0;
        std::int64_t held_bytes = 0;
        for (const Compared& row : summary.compared) {
          const std::string where = name_of(options) + " " + options.dtype + " gradients " +
                                    options.gradients + ", rank " + std::to_string(ranks.rank()) +
                                    ": " + row.name;
          if (row.unit == "calls") calls = row.predicted;
          for (const char* memory :
               {"parameters", "gradients", "optimizer state", "working buffers", "activations"}) {
            if (row.unit == "bytes" && row.name.starts_with(memory))
              held_bytes += static_cast<std::int64_t>(row.measured);
          }
          if (row.name.find(" time a step ") != std::string::npos) {
            EXPECT_GT(row.predicted, 0) << where;
            EXPECT_GE(row.measured, 0) << where;  // of tiny calls one in many is timed, for all
          } else if (row.name.starts_with("of a mean step")) {
            EXPECT_GT(row.predicted, 0) << where;
            EXPECT_TRUE(std::isfinite(row.measured)) << where;  // less such an estimate
          } else if (row.unit == "s" || row.name.starts_with("utilisation")) {
            EXPECT_GT(row.measured, 0) << where;
          } else if (row.name.find(" sent ") != std::string::npos) {
            EXPECT_NEAR(row.measured, row.predicted, 2 * 8 * world * calls) << where;
          } else {
            EXPECT_EQ(row.measured, row.predicted) << where;
          }
        }
        // What the planner says of a layout is what the rank that needs most holds of it.
        ranks.all_reduce(&held_bytes, &held_bytes, 1, DType::kI64, ReduceOp::kMax);
        EXPECT_EQ(held_bytes, sched::predict(plan.run, {}).memory_bytes())
            << name_of(options) << " " << options.dtype << " gradients " << options.gradients;
      });
    }
  }
}

TEST(Report, TheTimelineHasEveryForwardAndBackwardOfThePipelineFromZeroOn) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 3, .heads = 2});
  options.data = test::write_text_data(directory);
  options.pp = 3;
  options.microbatches = 4;
  options.threads = 1;
  run_ranks(3, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 3), ranks);
    static_cast<void>(trainer->step());
    const sched::Timeline timeline = trainer->timeline();
    EXPECT_EQ(timeline.spans.size(), 3U * 2 * 4);
    EXPECT_EQ(timeline.begin_s(), 0);
    EXPECT_GT(timeline.end_s(), 0);
    // The first stage's forward of a microbatch ends before the second's begins.
    for (const sched::Span& a : timeline.spans) {
      for (const sched::Span& b : timeline.spans) {
        if (a.label[0] == 'F' && a.label == b.label && b.row == a.row + 1) {
          EXPECT_LE(a.end_s, b.begin_s);
        }
      }
    }
  });
}

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::istringstream file(test::read_file(path));
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(RunTraining, WritesMetricsSummaryAndCheckpointAndLearns) {
  const ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.layers = 2, .heads = 2, .channels = 32});
  options.data = test::write_text_data(directory);
  options.tp = 2;
  options.steps = 40;
  options.eval_every = 10;
  options.save_every = 20;
  options.lr = 1e-2;
  options.threads = 1;
  options.out = directory.path("run");
  run_ranks(2, [&](comm::Communicator& ranks) {
    const TrainPlan plan = make_plan(options, 2);
    const auto trainer = Trainer::create(plan, ranks);
    int seen = 0;
    const Summary summary = run_training(
        *trainer, plan, ranks, [&](const StepMetrics&, std::optional<double>) { ++seen; });
    EXPECT_EQ(seen, 40);
    EXPECT_GT(summary.tokens_per_s, 0);
  });
  const std::vector<json> lines = lines_of(options.out + "/metrics.jsonl");
  ASSERT_EQ(lines.size(), 40U);
  for (const json& line : lines) {
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens_per_s", "step_ms"})
      EXPECT_TRUE(line.contains(key)) << key;
    EXPECT_EQ(line.contains("validation_loss"), line["step"].get<int>() % 10 == 0);
  }
  // Guessing over 256 bytes costs ln 256 = 5.5 nats, over the 16 that this text uses 2.8.
  EXPECT_NEAR(lines.front()["loss"].get<double>(), std::log(256), 0.2);
  EXPECT_LT(lines.back()["loss"].get<double>(), 2.8);
  const json summary = json::parse(test::read_file(options.out + "/summary.json"));
  EXPECT_EQ(summary["layout"]["tp"], 2);
  EXPECT_GT(summary["compared"].size(), 8U);

  // A resumed run goes on from the checkpoint at 40.
  options.resume = options.out;
  options.steps = 42;
  run_ranks(2, [&](comm::Communicator& ranks) {
    const TrainPlan plan = make_plan(options, 2);
    const auto trainer = Trainer::create(plan, ranks);
    static_cast<void>(
        run_training(*trainer, plan, ranks, [](const StepMetrics&, std::optional<double>) {}));
  });
  EXPECT_EQ(lines_of(options.out + "/metrics.jsonl").size(), 42U);
}

StepMetrics metrics_of(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  return metrics;
}

TEST(MetricsFile, AResumedRunDropsTheLinesOfStepsThatWillComeAgain) {
  const ScratchDirectory directory;
  {
    MetricsFile file(directory.path("run"), true, 0);
    for (std::int64_t step = 1; step <= 5; ++step) file.write(metrics_of(step), -1);
  }
  {
    MetricsFile file(directory.path("run"), true, 3);
    StepMetrics skipped = metrics_of(4);
    skipped.gradient_norm = NAN;
    skipped.skipped = true;
    skipped.note = "why";
    file.write(skipped, -1);
  }
  const std::vector<json> lines = lines_of(directory.path("run") + "/metrics.jsonl");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[2]["step"], 3);
  EXPECT_TRUE(lines[3]["grad_norm"].is_null());
  EXPECT_EQ(lines[3]["skipped"], "why");
  MetricsFile anew(directory.path("run"), true, 0);
  EXPECT_EQ(lines_of(directory.path("run") + "/metrics.jsonl").size(), 0U);
}

}  // namespace
}  // namespace sinew::model
