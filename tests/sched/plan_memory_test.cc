// Parameter counts, static bytes, activations and FLOPs against published numbers and against the
// sums of their parts.
#include "sched/plan/memory.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sched/base/error.h"
#include "sched/pipeline/schedule.h"
#include "sched/plan/flops.h"
#include "sched/plan/held.h"
#include "sched/plan/model_shape.h"

namespace sinew::sched {
namespace {

ModelShape llama(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                 std::int64_t channels, std::int64_t hidden, std::int64_t vocabulary) {
  return {"llama",  Family::kLlama, layers,     heads, kv_heads,
          channels, hidden,         vocabulary, 8192,  false};
}

TEST(PlanParameters, Gpt2HasThePublishedCounts) {
  EXPECT_EQ(parameter_count(gpt2_shapes()[0]), 124'439'808);
  EXPECT_EQ(parameter_count(gpt2_shapes()[1]), 354'823'168);
  EXPECT_EQ(parameter_count(gpt2_shapes()[2]), 774'030'080);
  EXPECT_EQ(parameter_count(gpt2_shapes()[3]), 1'557'611'200);
  EXPECT_EQ(parameter_count(gpt2_shape("padded", 12, 12, 768, 50304)), 124'475'904);
}

TEST(PlanParameters, LlamaHasThePublishedCounts) {
  EXPECT_EQ(parameter_count(llama(32, 32, 32, 4096, 11008, 32000)), 6'738'415'616);   // Llama 2 7B
  EXPECT_EQ(parameter_count(llama(32, 32, 8, 4096, 14336, 128256)), 8'030'261'248);   // Llama 3 8B
  EXPECT_EQ(parameter_count(llama(80, 64, 8, 8192, 28672, 128256)), 70'553'706'496);  // Llama 3 70B
}

// Parts of all ranks hold the model once, but for what is replicated on purpose: over tp the norms,
// row biases and positions, over pp the second copy of a tied table.
TEST(PlanParameters, PartsOfAllRanksAddUpToTheModel) {
  for (const ModelShape& shape :
       {gpt2_shape("small", 7, 6, 48, 101, 32), gpt2_shape("even", 8, 4, 64, 256, 16)}) {
    const std::int64_t c = shape.channels;
    const std::int64_t replicated = shape.layers * 6 * c + shape.positions * c + 2 * c;
    for (int tp = 1; tp <= 4; ++tp) {
      for (const auto& placement :
           {looping_placement(1, 1), looping_placement(3, 1), looping_placement(3, 2),
            v_placement(3, 2), looping_placement(7, 1)}) {
        const int ranks = 1 + *std::max_element(placement.begin(), placement.end());
        std::int64_t sum = 0;
        std::int64_t layers = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          for (int t = 0; t < tp; ++t)
            sum += parameter_count(shape, part_of(shape, placement, rank, tp, t));
          layers += part_of(shape, placement, rank, tp, 0).layers;
        }
        EXPECT_EQ(layers, shape.layers);
        const bool two_tables = placement.front() != placement.back();
        EXPECT_EQ(sum, parameter_count(shape) + (tp - 1) * replicated +
                           (two_tables ? shape.vocabulary * c : 0));
      }
    }
  }
}

double gigabytes(std::int64_t count, Zero zero, const Precision& precision) {
  return static_cast<double>(static_bytes(count, zero, precision, 64, 0).total()) / 1e9;
}

TEST(PlanMemory, StaticBytesAreThoseOfTheZeroPaperAt64Ranks) {
  constexpr std::int64_t kBillion = 1'000'000'000;
  const double small[] = {120, 31.4, 16.6, 1.9};
  const double large[] = {1120, 293.1, 155.3, 17.5};
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_NEAR(gigabytes(15 * kBillion / 2, parse_zero(stage), kBf16), small[stage], 0.05);
    EXPECT_NEAR(gigabytes(70 * kBillion, parse_zero(stage), kBf16), large[stage], 0.05);
  }
}

// The table of multiples, for a count that 64 divides.
TEST(PlanMemory, StaticBytesAreTheTabledMultiplesForEveryPrecision) {
  constexpr std::int64_t kCount = 64 * 1001;
  struct Row {
    Precision precision;
    int held[4];  // bytes per parameter on every rank, by ZeRO stage
    int cut[4];   // bytes per parameter over all ranks together
  };
  for (const Row& row : {Row{kBf16, {16, 4, 2, 0}, {0, 12, 14, 16}},
                         Row{kBf16MainGradients, {18, 6, 2, 0}, {0, 12, 16, 18}},
                         Row{kAllF32, {16, 8, 4, 0}, {0, 8, 12, 16}}}) {
    for (int stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(static_bytes(kCount, parse_zero(stage), row.precision, 64, 0).total(),
                row.held[stage] * kCount + row.cut[stage] * kCount / 64)
          << row.precision.name << " ZeRO " << stage;
    }
  }
}

TEST(PlanMemory, CutArraysOfAllRanksAddUpForAnyRemainder) {
  for (const std::int64_t count : {0, 1, 5, 64, 1003}) {
    for (std::int64_t ranks = 1; ranks <= 9; ++ranks) {
      StaticBytes sum;
      for (std::int64_t i = 0; i < ranks; ++i) {
        const StaticBytes bytes =
            static_bytes(count, Zero::kParameters, kBf16MainGradients, ranks, i);
        sum.parameters += bytes.parameters;
        sum.gradients += bytes.gradients;
        sum.optimizer += bytes.optimizer;
      }
      EXPECT_EQ(sum, (StaticBytes{2 * count, 4 * count, 12 * count}));
    }
  }
}

TEST(PlanMemory, GatheredUnitsAreCountedForZero3) {
  EXPECT_EQ(gathered_bytes(Zero::kParameters, 1000, 1, kBf16), 2 * 1000 * 2 + 2 * 1000 * 2);
  EXPECT_EQ(gathered_bytes(Zero::kGradients, 1000, 1, kBf16MainGradients), 2 * 1000 * 4);
  EXPECT_EQ(gathered_bytes(Zero::kOptimizer, 1000, 1, kBf16), 0);
  EXPECT_THROW((void)parse_zero(4), UsageError);
}

// A stage that always has a microbatch between forward and backward keeps its weights all step.
TEST(PlanMemory, KeptWeightsAreGatheredWhenAStageBeginsToHoldMicrobatches) {
  EXPECT_EQ(kept_bytes(5000, 300, kBf16), (5000 + 2 * 300) * 2);
  const auto spans = [](const char* name, int ranks, int microbatches, int stage) {
    return kept_spans(generate(find_pipe_algorithm(name),
                               {.ranks = ranks, .chunks = 1, .microbatches = microbatches}),
                      stage);
  };
  EXPECT_EQ(spans("1f1b", 1, 4, 0), 4);
  EXPECT_EQ(spans("1f1b", 2, 4, 0), 1);
  EXPECT_EQ(spans("1f1b", 2, 4, 1), 4);  // the last: each backward follows its forward
  for (const int stage : {0, 1, 2}) EXPECT_EQ(spans("gpipe", 3, 4, stage), 1);
}

// 22B of Korthikanti et al.: L 48, C 6144, H 64, T 2048, B 4, t 8. First stage, GiB.
TEST(PlanMemory, ActivationsAreThoseOfThePaper) {
  const ModelShape model = gpt2_shape("22B", 48, 64, 6144, 51200, 2048);
  const auto gib = [&](bool sequence_parallel, Recompute recompute) {
    return 48 * paper_activation_bytes(model, {4, 2048, 8, sequence_parallel, recompute}) / 0x1p30;
  };
  const double baseline = gib(false, Recompute::kNone);
  EXPECT_NEAR(baseline, 59.25, 0.005);
  EXPECT_NEAR(gib(true, Recompute::kSelective), 9.56, 0.005);
  EXPECT_NEAR(gib(true, Recompute::kNone) / baseline, 0.668, 0.0005);
  EXPECT_NEAR(gib(false, Recompute::kSelective) / baseline, 0.494, 0.0005);
  EXPECT_NEAR(gib(false, Recompute::kFull) / baseline, 0.076, 0.0005);
  const double rows = 4.0 * 2048 * 6144;
  EXPECT_DOUBLE_EQ(paper_activation_bytes(model, {4, 2048, 1, false, Recompute::kNone}),
                   rows * (34 + 5.0 * 64 * 2048 / 6144));
}

TEST(PlanMemory, SavedTensorsHaveTheStatedSum) {
  const ModelShape model = gpt2_shape("small", 4, 8, 64, 256, 32);
  for (const int tp : {1, 2, 4, 8}) {
    const auto saved =
        saved_bytes(layer_saved_tensors(model, {3, 32, tp, false, Recompute::kNone}, kAllF32));
    EXPECT_EQ(saved, 4 * 3 * 32 * (4 * 64 + 12 * 64 / tp + 8 / tp + 4));
    const auto sequence =
        saved_bytes(layer_saved_tensors(model, {3, 32, tp, true, Recompute::kNone}, kAllF32));
    EXPECT_EQ(sequence, 4 * 3 * 32 * (16 * 64 + 8 + 4) / tp);
    EXPECT_EQ(
        saved_bytes(layer_saved_tensors(model, {3, 32, tp, false, Recompute::kFull}, kAllF32)),
        4 * 3 * 32 * 64);
  }
  const ModelShape grouped = llama(4, 8, 2, 64, 96, 256);
  EXPECT_EQ(saved_bytes(layer_saved_tensors(grouped, {1, 16, 2, false, Recompute::kNone}, kBf16)),
            16 * (2 * (4 * 64 + (2 * 64 + 2 * 2 * 8 + 3 * 96) / 2) + 4 * (8 / 2 + 2)));
}

TEST(PlanFlops, ConventionsAgreeWhereTheirFormulasDo) {
  for (const ModelShape& shape : gpt2_shapes()) {
    const auto per_token = [&](const char* name) {
      return find_flops_convention(name).per_token(shape, 1024);
    };
    const auto layers = static_cast<double>(shape.layers);
    const auto channels = static_cast<double>(shape.channels);
    const auto vocabulary = static_cast<double>(shape.vocabulary);
    // Half the attention between palm and llm.c; the tables between palm and no-tables.
    EXPECT_NEAR(per_token("palm") - per_token("llm.c"), 6 * layers * channels * 1024, 1);
    EXPECT_NEAR(per_token("palm") - per_token("no-tables"), 6 * (vocabulary + 1024) * channels, 1);
    // Matrices alone: `model` counts all of attention, `shapes` half of it.
    EXPECT_NEAR(per_token("model") - per_token("shapes"), 6 * layers * channels * 1024, 1);
    // Full recomputation adds one forward of the layers.
    EXPECT_NEAR(per_token("hardware") - per_token("model"),
                layers * (24 * channels * channels + 4 * channels * 1024),
                1e-3 * per_token("model"));
  }
  EXPECT_THROW((void)find_flops_convention("nothing"), UsageError);
}

// 175B of Korthikanti et al. on 64 devices, batch 64, 13.75 s: 51.4 % of 312 TFLOP/s each.
TEST(PlanFlops, UtilisationIsThatOfThePaper) {
  const ModelShape model = gpt2_shape("175B", 96, 96, 12288, 51200, 2048);
  const double mfu =
      utilisation(find_flops_convention("model"), model, 2048, {64 * 2048.0, 13.75, 64 * 312e12});
  EXPECT_NEAR(mfu, 0.514, 0.0015);
}

}  // namespace
}  // namespace sinew::sched
