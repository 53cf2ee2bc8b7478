// Laws of traffic, predictions and the search over layouts.
#include "sched/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "sched/base/error.h"
#include "sched/plan/flops.h"
#include "sched/plan/held.h"

namespace sinew::sched {
namespace {

RunShape small_run() {
  RunShape run;
  run.model = gpt2_shape("small", 8, 8, 64, 256, 32);
  run.batch = 16;
  run.time = 32;
  run.microbatches = 1;
  return run;
}

std::vector<Traffic> traffic(const RunShape& run, int pp_rank) {
  return traffic_of(run, generate(find_pipe_algorithm(run.schedule), pipe_params(run)), pp_rank, 0);
}

double sent(const RunShape& run, int pp_rank, Axis axis) {
  double elements = 0;
  for (const Traffic& t : traffic(run, pp_rank)) elements += t.axis == axis ? t.sent_elements() : 0;
  return elements;
}

TEST(PlanVolume, DataParallelElementsAreTheClosedFormsOfZero) {
  RunShape run = small_run();
  run.sizes = {1, 1, 1, 4};
  const auto count = static_cast<double>(parameter_count(run.model));
  for (const int m : {1, 2, 4}) {
    run.microbatches = m;
    const double expected[] = {2, 2, m + 1.0, 3.0 * m};
    for (int stage = 0; stage < 4; ++stage) {
      run.zero = parse_zero(stage);
      EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kDp), expected[stage] * count * 3 / 4)
          << "ZeRO " << stage << " m " << m;
    }
  }
}

// Over groups of S of N ranks the closed forms of S, and one all-reduce of a piece over the groups.
TEST(PlanVolume, HybridShardingSumsOnePieceOverTheGroups) {
  RunShape run = small_run();
  run.sizes = {1, 1, 1, 8};
  run.microbatches = 2;
  const std::int64_t count = parameter_count(run.model);
  const double own[] = {0, 2, 3, 6};
  for (const int shard : {1, 2, 4, 8}) {
    run.shard = shard;
    for (int stage = 1; stage < 4; ++stage) {
      run.zero = parse_zero(stage);
      ASSERT_EQ(refuse(run), "");
      const int groups = 8 / shard;
      const double piece = static_cast<double>((count + shard - 1) / shard);
      EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kDp),
                       own[stage] * static_cast<double>(count) * (shard - 1) / shard +
                           2 * piece * (groups - 1) / groups)
          << "ZeRO " << stage << " shard " << shard;
    }
  }
  run.shard = 3;
  EXPECT_NE(refuse(run).find("legal shard: 1, 2, 4, 8"), std::string::npos) << refuse(run);
}

// Per layer and microbatch 8 B T C (t-1)/t; the table and the head 2 B T C (t-1)/t each, the loss 6
// B T (t-1)/t. Sequence parallelism moves the same, and twice per layer gathers a norm's output
// again and once per step sums the 17 norms' 2 C gradients.
TEST(PlanVolume, TensorParallelElementsAreTheClosedFormAndSequenceParallelismAddsItsGathers) {
  RunShape run = small_run();
  for (const int tp : {1, 2, 4, 8}) {
    run.sizes = {tp, 1, 1, 1};
    run.microbatches = 4;
    const double rows = 16 * 32;
    const double ring = (tp - 1.0) / tp;
    const double expected = ring * rows * (64 * (8 * 8 + 2 + 2) + 6);
    run.sequence_parallel = false;
    EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kTp), expected);
    run.sequence_parallel = true;
    const double added = ring * (rows * 64 * 2 * 8 + 2 * 17 * 2 * 64);
    EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kTp), expected + added);
    run.recompute = Recompute::kFull;
    EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kTp), expected + added + ring * rows * 64 * 4 * 8);
    run.recompute = Recompute::kNone;
  }
}

TEST(PlanVolume, PipelineElementsAreThoseOfItsBoundariesAndTheTiedTable) {
  RunShape run = small_run();
  run.sizes = {1, 1, 4, 1};
  run.microbatches = 8;
  const double activations = 16 * 32 * 64;
  const double table = 256 * 64;  // an all-reduce of two ranks sends it once
  EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kPp), activations + table);
  EXPECT_DOUBLE_EQ(sent(run, 1, Axis::kPp), 2 * activations);
  EXPECT_DOUBLE_EQ(sent(run, 3, Axis::kPp), activations + table);
  run.schedule = "interleaved";
  run.chunks = 2;
  EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kPp), 3 * activations + table);
  EXPECT_DOUBLE_EQ(sent(run, 1, Axis::kPp), 4 * activations);
  run.schedule = "zb-v";  // first and last stage are on rank 0: one table
  EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kPp), 2 * activations);
  EXPECT_DOUBLE_EQ(sent(run, 3, Axis::kPp), 2 * activations);
}

TEST(PlanVolume, RingAttentionSendsKeysValuesAndTheirGradients) {
  RunShape run = small_run();
  for (const int cp : {2, 4}) {
    run.sizes = {2, cp, 1, 1};
    const double pair = 2.0 * 32 / cp * 16 * 8 / 2 * 8;  // (T/c) B K/t d, keys and values
    EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kCp), 8 * pair * (2 * (cp - 1) + cp));
  }
}

// Per layer and microbatch of one sequence, c - 1 messages each of 1/c of what the rank has:
// queries, keys and values there and their gradients back, outputs, and their gradients with a sum
// per row.
TEST(PlanVolume, UlyssesTradesPositionsForHeadsFourTimes) {
  RunShape run = small_run();
  run.context_mode = ContextMode::kUlysses;
  for (const int cp : {2, 4}) {
    run.sizes = {2, cp, 1, 1};
    const double rows = 32.0 * 16 / cp;
    const double per_row = 2 * 3 * 32 + 2 * 32 + 4;  // 4 heads of 8 channels on a tensor rank
    EXPECT_DOUBLE_EQ(sent(run, 0, Axis::kCp), 8 * rows * per_row * (cp - 1) / cp);
  }
}

TEST(PlanVolume, FewerKeyValueHeadsThanTensorRanksSumTheirCopiesGradientsOnce) {
  RunShape run = small_run();
  run.model.family = Family::kLlama;
  run.model.kv_heads = 2;
  run.sizes = {8, 1, 1, 1};
  double copies = 0;
  for (const Traffic& t : traffic(run, 0)) {
    if (t.what != kCopiesGradients) continue;
    EXPECT_EQ(t.ranks, 4);
    copies += t.sent_elements();
  }
  EXPECT_DOUBLE_EQ(copies, 2 * 3.0 / 4 * 8 * 2 * 8 * 64);
}

TEST(PlanVolume, GroupTotalsAreWholeForAnyRemainder) {
  const Traffic sum = {Axis::kDp, "x", Pattern::kAllReduce, Phase::kStep, 3, 2, 7, 4};
  EXPECT_EQ(sum.group_elements(), 2 * 2 * 2 * 7);
  EXPECT_DOUBLE_EQ(sum.sent_bytes(), 2 * 2 * 2 * 7 / 3.0 * 4);
}

void expect_refused(const RunShape& run, std::string_view part) {
  const std::string refusal = refuse(run);
  EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
  EXPECT_THROW(validate(run), UsageError);
}

// The numbers after `label` in a refusal.
std::set<std::int64_t> listed(const std::string& refusal, const std::string& label) {
  std::set<std::int64_t> values;
  const std::size_t begin = refusal.find(label);
  if (begin == std::string::npos) return values;
  std::istringstream words(refusal.substr(begin + label.size()));
  for (std::string word; words >> word;) {
    if (word != "and") values.insert(std::stoll(word));
  }
  return values;
}

// Key/value heads that tensor ranks copy allow more of them than their divisors.
TEST(PlanRules, WhatIsListedAsLegalIsAndNothingElse) {
  RunShape run = small_run();
  int refused = 0;
  for (const auto& [heads, kv_heads, hidden, vocabulary] :
       {std::array{12, 6, 96, 256}, std::array{12, 4, 90, 256}, std::array{12, 3, 96, 5}}) {
    run.model = gpt2_shape("odd", 4, heads, heads * 8, vocabulary, 32);
    run.model.family = Family::kLlama;
    run.model.kv_heads = kv_heads;
    run.model.hidden = hidden;
    std::set<std::int64_t> legal;
    for (run.sizes.tp = 1; run.sizes.tp <= heads; ++run.sizes.tp) {
      if (!refuse(run).starts_with("tp ")) legal.insert(run.sizes.tp);
    }
    for (run.sizes.tp = 1; run.sizes.tp <= heads; ++run.sizes.tp) {
      if (legal.contains(run.sizes.tp)) continue;
      ++refused;
      EXPECT_EQ(listed(refuse(run), "legal tp:"), legal) << refuse(run);
    }
  }
  EXPECT_GT(refused, 0);
  run = small_run();
  run.sizes.cp = 3;
  for (run.time = 1; run.time <= 32; ++run.time) {
    if (run.time % 6 == 0) continue;
    const std::int64_t time = run.time;
    const std::set<std::int64_t> nearest = listed(refuse(run), "nearest legal:");
    EXPECT_FALSE(nearest.empty()) << refuse(run);
    for (const std::int64_t legal : nearest) {
      EXPECT_LT(std::abs(legal - time), 6);
      run.time = legal;
      EXPECT_EQ(refuse(run), "") << time;
      run.time = time;
    }
  }
}

TEST(PlanRules, EveryDivisibilityFaultIsOneLineWithTheLegalValues) {
  const RunShape legal = small_run();
  EXPECT_EQ(refuse(legal), "");
  RunShape run = legal;
  run.sizes.tp = 3;
  expect_refused(run, "tp 3 does not divide the 8 heads; legal tp: 1, 2, 4, 8");
  run = legal;
  run.sizes.pp = 9;
  expect_refused(run, "9 stages, more than the 8 layers; legal pp: 1 to 8");
  run = legal;
  run.sizes.dp = 3;
  expect_refused(run, "batch 16 is not a multiple of dp 3; legal dp: 1, 2, 4, 8, 16");
  run = legal;
  run.microbatches = 3;
  expect_refused(run, "3 microbatches do not divide the 16 sequences of a replica (batch / dp)");
  run = legal;
  run.time = 33;
  expect_refused(run, "32 positions; legal: 1 to 32");
  run = legal;
  run.sizes.cp = 3;
  expect_refused(run, "not a multiple of 6 (cp 3, cp_mode zigzag)");
  run.context_mode = ContextMode::kUlysses;
  run.time = 30;
  expect_refused(run, "cp 3 with cp_mode ulysses does not divide the 8 heads");
  run = legal;
  run.sizes.tp = 8;
  run.time = 12;
  run.microbatches = 16;
  run.sequence_parallel = true;
  expect_refused(run, "sequence parallelism cuts the 12 rows of a microbatch");
  run = legal;
  run.schedule = "interleaved";
  expect_refused(run, "at least 2 model chunks");
  run = legal;
  run.schedule = "best";
  expect_refused(run, "the schedules are gpipe");
  run = legal;
  run.order = "tp,dp";
  run.sizes.pp = 2;
  expect_refused(run, "leaves out pp");
  run = legal;
  run.batch = 0;
  expect_refused(run, "batch 0");
  run = legal;
  run.model.heads = 7;
  expect_refused(run, "heads divide channels, and 7 does not divide 64");
  run = legal;
  run.model.hidden = 100;
  expect_refused(run, "4 x channels");
  run = legal;
  run.model.family = Family::kLlama;
  run.model.kv_heads = 4;
  run.sizes.tp = 8;  // each key/value head on two ranks
  EXPECT_EQ(refuse(run), "");
  run.model.layers = 0;
  expect_refused(run, "layers 0 is not a size");
}

Machine machine_without_links() {
  Machine machine;
  machine.flops = 1e9;
  machine.memory_per_s = 0;
  return machine;
}

TEST(PlanPrediction, OneRankTakesItsFlops) {
  RunShape run = small_run();
  const Machine machine = machine_without_links();
  const double tokens = 16 * 32;
  const double flops = find_flops_convention("shapes").per_token(run.model, 32) * tokens;
  for (const int m : {1, 4, 16}) {
    run.microbatches = m;
    const Prediction prediction = predict(run, machine);
    EXPECT_NEAR(prediction.step_s, flops / 1e9, 1e-9);
    EXPECT_EQ(prediction.static_bytes.total(), 16 * parameter_count(run.model));
    EXPECT_EQ(prediction.activation_bytes, 16 / m * 32 * 4 * (8 * (16 * 64 + 8 + 4) + 64));
    EXPECT_EQ(prediction.sent_bytes, 0);
  }
}

TEST(PlanPrediction, FreeLinksMakeTensorAndDataParallelismPerfectAndThePipelineAsGoodAsItsBubble) {
  const Machine machine = machine_without_links();
  RunShape run = small_run();
  run.model.vocabulary = 8;  // a head that hardly counts, so that stages are equal
  const double one = predict(run, machine).step_s;
  run.sizes = {2, 1, 1, 2};
  EXPECT_NEAR(predict(run, machine).step_s, one / 4, 1e-9);
  run.sizes = {1, 1, 4, 1};
  run.microbatches = 8;
  const Prediction pipeline = predict(run, machine);
  EXPECT_NEAR(pipeline.bubble, 3.0 / 8, 0.01);
  EXPECT_NEAR(pipeline.step_s, one / 4 * (1 + 3.0 / 8), 0.01 * one);
}

// 8 stages of 1024 microbatches are more computations than are simulated, 8 of 512 are not.
TEST(PlanPrediction, ClosedFormOfLargePipelinesContinuesTheSimulationOfSmallerOnes) {
  Machine machine = machine_without_links();
  RunShape run = small_run();
  run.model.vocabulary = 8;
  run.sizes = {1, 1, 8, 1};
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    run.schedule = schedule;
    std::vector<double> over_ideal;
    for (const int m : {512, 1024}) {
      run.batch = m;
      run.microbatches = m;
      const Prediction prediction = predict(run, machine);
      over_ideal.push_back((prediction.step_s / prediction.compute_s - 1) * m);
    }
    // Idle time in microbatches: the same, but for the head, which lengthens the last stage by 1 %.
    EXPECT_NEAR(over_ideal[1], over_ideal[0], 0.02 * over_ideal[0]) << schedule;
  }
}

TEST(PlanPrediction, RanksBeyondTheCoresShareThem) {
  Machine machine = machine_without_links();
  machine.cores = 2;
  RunShape run = small_run();
  const double one = predict(run, machine).step_s;
  run.sizes = {1, 1, 1, 8};
  run.microbatches = 2;
  EXPECT_NEAR(predict(run, machine).step_s, one / 2, 1e-9);
}

TEST(PlanPrediction, SlowLinksOfAnAxisStallIt) {
  RunShape run = small_run();
  run.sizes = {2, 1, 1, 2};
  Machine machine = machine_without_links();
  machine.links[static_cast<std::size_t>(Axis::kTp)] = {1e-5, 1e-9};
  const Prediction near = predict(run, machine);
  machine.links[static_cast<std::size_t>(Axis::kTp)] = {1e-4, 1e-8};
  const Prediction far = predict(run, machine);
  EXPECT_NEAR(far.axis_s[0], 10 * near.axis_s[0], 1e-9);
  EXPECT_NEAR(far.step_s - near.step_s, far.axis_s[0] - near.axis_s[0], 1e-9);
  EXPECT_GT(far.stall(Axis::kTp), near.stall(Axis::kTp));
  EXPECT_EQ(far.stall(Axis::kPp), 0);
}

TEST(PlanPrediction, Zero3TradesMemoryForTrafficAndFullRecomputationForTime) {
  RunShape run = small_run();
  run.sizes = {1, 1, 1, 4};
  Machine machine = machine_without_links();
  machine.memory_per_s = 1e10;
  machine.links[static_cast<std::size_t>(Axis::kDp)] = {1e-6, 1e-9};
  std::vector<Prediction> by_stage;
  for (int stage = 0; stage < 4; ++stage) {
    run.zero = parse_zero(stage);
    by_stage.push_back(predict(run, machine));
    if (stage == 0) continue;
    EXPECT_LT(by_stage.back().static_bytes.total(),
              by_stage[by_stage.size() - 2].static_bytes.total());
  }
  EXPECT_GT(by_stage[3].sent_bytes, by_stage[0].sent_bytes);
  run.zero = Zero::kNone;
  run.recompute = Recompute::kFull;
  const Prediction full = predict(run, machine);
  // The forward of the layers again: a third of them, and nothing of the head.
  const double layers_s = 8 * layer_forward_flops(run.model, run.time) *
                          static_cast<double>(run.batch * run.time) / 4 / machine.flops;
  EXPECT_NEAR(full.compute_s, by_stage[0].compute_s + layers_s, 1e-9);
  EXPECT_LT(full.activation_bytes, by_stage[0].activation_bytes / 10);
}

TEST(PlanPrediction, RecomputationOfSomeLayersTakesTheirShare) {
  RunShape run = small_run();
  Machine machine;
  machine.flops = 1e9;
  const auto seconds = [&](const std::string& kinds) {
    run.recompute_layers = parse_recompute_list(kinds, run.model.layers);
    return predict(run, machine).compute_s;
  };
  const double none = seconds("none");
  const double all = seconds("full") - none;
  const double tokens = static_cast<double>(run.batch * run.time);
  EXPECT_NEAR(all, 8 * layer_forward_flops(run.model, run.time) * tokens / 1e9, 1e-9);
  EXPECT_NEAR(seconds("full,full,none,none,none,none,none,none") - none, all / 4, 1e-9);
}

// The tables of a small model with a large vocabulary are more than any layer.
TEST(PlanPrediction, WhatZero3GathersIsTheLargestUnitAlsoWhereThatIsTheTables) {
  RunShape run = small_run();
  run.sizes = {1, 1, 1, 2};
  run.zero = Zero::kParameters;
  for (const std::int64_t vocabulary : {256, 50257}) {
    run.model = gpt2_shape("small", 8, 8, 64, vocabulary, 32);
    const std::int64_t largest = std::max(layer_parameter_count(run.model, 1, 0), vocabulary * 64);
    EXPECT_EQ(predict(run, {}).working_bytes,
              gathered_bytes(Zero::kParameters, largest, 1, run.precision) +
                  vocabulary * 64 / 2 * run.precision.gradient);
  }
}

TEST(PlanSearch, ListsEveryLegalGridOnceSortedAndOnlyLegalOnes) {
  PlanRequest request;
  request.run = small_run();
  request.world = 8;
  request.cp_max = 2;
  Machine machine = machine_without_links();
  machine.links.fill({1e-6, 1e-9});
  const std::vector<Plan> all = plans(request, machine);
  std::set<std::tuple<int, int, int, int>> grids;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const PerAxis& sizes = all[i].run.sizes;
    EXPECT_EQ(refuse(all[i].run), "");
    EXPECT_EQ(all[i].run.world(), 8);
    grids.emplace(sizes.tp, sizes.cp, sizes.pp, sizes.dp);
    EXPECT_LE(all[i == 0 ? 0 : i - 1].prediction.step_s, all[i].prediction.step_s);
  }
  std::set<std::tuple<int, int, int, int>> expected;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int cp : {1, 2}) {
      for (const int pp : {1, 2, 4, 8}) {
        if (8 % (tp * cp * pp) == 0) expected.emplace(tp, cp, pp, 8 / (tp * cp * pp));
      }
    }
  }
  EXPECT_EQ(grids, expected);
}

TEST(PlanSearch, WhatFitsComesFirstAndNothingLegalIsSaidInOneLine) {
  PlanRequest request;
  request.run = small_run();
  request.world = 4;
  Machine machine = machine_without_links();
  const std::vector<Plan> unlimited = plans(request, machine);
  std::int64_t least = unlimited.front().prediction.memory_bytes();
  std::int64_t most = least;
  for (const Plan& plan : unlimited) {
    least = std::min(least, plan.prediction.memory_bytes());
    most = std::max(most, plan.prediction.memory_bytes());
  }
  machine.memory_bytes = (least + most) / 2;
  const std::vector<Plan> limited = plans(request, machine);
  EXPECT_EQ(limited.size(), unlimited.size());
  EXPECT_TRUE(limited.front().fits);
  EXPECT_FALSE(limited.back().fits);
  EXPECT_TRUE(std::is_partitioned(limited.begin(), limited.end(),
                                  [](const Plan& plan) { return plan.fits; }));
  request.world = 7;
  request.run.model.layers = 2;
  try {
    (void)plans(request, machine);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("batch 16 is not a multiple of dp 7"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace sinew::sched
