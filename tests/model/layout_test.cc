// Layouts: the slices of all ranks cover every logical element once, and stages agree about units.
#include "model/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace sinew::model {
namespace {

// 24 heads and 5 layers: tp divides the heads, nothing divides the vocabulary, stages are uneven.
Config test_config() {
  return {
      .name = "test", .layers = 5, .heads = 24, .channels = 48, .vocabulary = 53, .max_time = 7};
}

TEST(Layout, TheRanksThatStandForAParameterHoldEachLogicalElementOnce) {
  const Config config = test_config();
  for (const int tp : {1, 2, 3, 4, 6, 8}) {
    for (int pp = 1; pp <= 5; ++pp) {
      std::map<std::string, std::vector<int>> seen;
      for (const Parameter& p : whole_parameters(config))
        seen[p.name].assign(static_cast<std::size_t>(p.slice.logical_count()), 0);
      for (int stage = 0; stage < pp; ++stage) {
        for (int rank = 0; rank < tp; ++rank) {
          const FlatLayout flat =
              flat_layout(config, {stage_shape(config, pp, stage)}, {rank, tp}, 4);
          std::vector<bool> used(static_cast<std::size_t>(flat.count), false);
          for (const Parameter& p : flat.parameters) {
            p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
              for (std::int64_t i = 0; i < count; ++i) {
                ASSERT_LT(p.offset + local + i, flat.count);
                const auto at = static_cast<std::size_t>(p.offset + local + i);
                ASSERT_FALSE(used[at]) << p.name;
                used[at] = true;
                if (holds_for_all(p, {.tp = rank, .cp = 0, .pp = stage, .dp = 0}))
                  ++seen[p.name][static_cast<std::size_t>(logical + i)];
              }
            });
          }
        }
      }
      for (const auto& [name, counts] : seen) {
        EXPECT_EQ(std::set<int>(counts.begin(), counts.end()), std::set<int>{1})
            << name << " tp " << tp << " pp " << pp;
      }
    }
  }
}

// Head 0's query, key and value columns lie in the three thirds of the fused matrix.
TEST(Layout, TheFusedMatrixIsCutByHeadsWithinEachThird) {
  const Config config = test_config();
  const std::int64_t c = config.channels;
  const FlatLayout flat = flat_layout(config, {{0, 1, true, false}}, {1, 4});
  for (const Parameter& p : flat.parameters) {
    if (p.name != "h.0.attn.c_attn.bias") continue;
    std::vector<std::int64_t> columns;
    p.slice.for_each_run([&](std::int64_t, std::int64_t logical, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) columns.push_back(logical + i);
    });
    ASSERT_EQ(static_cast<std::int64_t>(columns.size()), 3 * c / 4);
    EXPECT_EQ(columns.front(), c / 4);
    EXPECT_EQ(columns[static_cast<std::size_t>(c / 4)], c + c / 4);
    EXPECT_EQ(columns.back(), 2 * c + c / 2 - 1);
  }
}

TEST(Layout, UnitsAreTheSameWhateverThePipelineAndMultiplesOfWhatIsAsked) {
  const Config config = test_config();
  for (const std::int64_t multiple : {1, 2, 3, 7}) {
    const FlatLayout whole = flat_layout(config, {{0, 5, true, true}}, {1, 3}, multiple);
    ASSERT_EQ(whole.units.size(), 8U);  // two tables, five layers, final norm
    for (int pp = 2; pp <= 5; ++pp) {
      std::vector<std::int64_t> counts;
      for (int stage = 0; stage < pp; ++stage) {
        const FlatLayout flat =
            flat_layout(config, {stage_shape(config, pp, stage)}, {1, 3}, multiple);
        std::int64_t end = 0;
        for (const Unit& unit : flat.units) {
          EXPECT_EQ(unit.begin, end);
          EXPECT_EQ(unit.count % multiple, 0);
          end = unit.begin + unit.count;
          counts.push_back(unit.count);
        }
        EXPECT_EQ(end, flat.count);
      }
      ASSERT_EQ(counts.size(), 9U);  // and the second copy of the tied table, last
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(counts[i], whole.units[i].count);
    }
  }
}

TEST(Layout, OnlyTensorsOfTwoDimensionsDecay) {
  for (const Parameter& p : whole_parameters(test_config())) {
    const bool vector = p.name.ends_with(".bias") || p.name.find("ln_") != std::string::npos;
    EXPECT_EQ(p.decay, !vector) << p.name;
  }
}

}  // namespace
}  // namespace sinew::model
