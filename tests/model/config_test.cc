// Model shapes and training plans: every illegal input is one line that names the value and what is
// legal.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/layout.h"
#include "model/trainer.h"
#include "sched/base/error.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

TEST(Config, ParameterCountsAreTheKnownOnes) {
  EXPECT_EQ(load_config("gpt2-124m").parameters(), 124439808);
  EXPECT_EQ(load_config("gpt2-350m").parameters(), 354823168);
  EXPECT_EQ(load_config("gpt2-774m").parameters(), 774030080);
  EXPECT_EQ(load_config("gpt2-1558m").parameters(), 1557611200);
}

TEST(Config, EveryNamedModelIsLegalAndSurvivesJson) {
  for (const Config& config : named_configs()) {
    validate(config);
    EXPECT_EQ(parse_config(to_json(config), "here"), config);
  }
}

TEST(Config, StageParametersAddUpToTheFormulaForEverySplit) {
  for (const char* name : {"byte-small", "llama-small"}) {
    const Config config = load_config(name);
    for (const int tp : {1, 2, 4}) {
      for (const int pp : {1, 2, 3, 4}) {
        std::int64_t count = 0;
        for (int stage = 0; stage < pp; ++stage) {
          for (int rank = 0; rank < tp; ++rank) {
            for (const Parameter& p :
                 flat_layout(config, {stage_shape(config, pp, stage)}, {rank, tp}).parameters) {
              if (holds_for_all(p, {.tp = rank, .cp = 0, .pp = stage, .dp = 0}))
                count += p.slice.local_count();
            }
          }
        }
        EXPECT_EQ(count, config.parameters()) << name << " tp " << tp << " pp " << pp;
      }
    }
  }
}

TEST(Config, BadKeysOfLlamaNameTheFault) {
  const auto message = [](const std::string& keys) {
    return test::usage_error_of([&] {
      static_cast<void>(
          parse_config("{\"layers\":1,\"heads\":4,\"channels\":16,\"vocabulary\":5,"
                       "\"max_time\":4" +
                           keys + "}",
                       "here"));
    });
  };
  EXPECT_EQ(message(",\"family\":\"llama\",\"kv_heads\":2,\"hidden\":8"), "");
  EXPECT_NE(message(",\"family\":\"bert\"").find("\"gpt2\", \"llama\""), std::string::npos);
  EXPECT_NE(message(",\"family\":\"llama\",\"kv_heads\":3").find("multiple of kv_heads 3"),
            std::string::npos);
  EXPECT_NE(message(",\"kv_heads\":2").find("keys of Llama"), std::string::npos);
  EXPECT_NE(message(",\"tied\":1").find("true, false"), std::string::npos);
  EXPECT_NE(message(",\"rope_theta\":0").find("legal values: 1 to"), std::string::npos);
}

TEST(Config, BadJsonNamesTheFault) {
  for (const char* bad :
       {"", "[]", "{\"layers\": 1}", "{\"layers\": \"2\"}", "{\"layers\": -1}", "{\"layer\": 1}",
        "{\"layers\": 1e3}", "{\"layers\": 99999999999999999999}", "{\"name\": 3}",
        "{\"layers\":1,\"heads\":3,\"channels\":16,\"vocabulary\":5,\"max_time\":4}"}) {
    EXPECT_THROW((void)parse_config(bad, "here"), UsageError) << bad;
  }
  EXPECT_NE(test::usage_error_of([] {
              static_cast<void>(parse_config(R"({"layers": 1, "heads": 2, "layers": 3})", "here"));
            }).find("key \"layers\" is given twice"),
            std::string::npos);
  EXPECT_THROW((void)load_config("gpt3"), UsageError);
  EXPECT_THROW((void)load_config("/no/such.json"), UsageError);
}

std::string refusal(const std::function<void(TrainOptions&)>& change, int world = 1) {
  TrainOptions options;
  change(options);
  return test::usage_error_of([&] { static_cast<void>(make_plan(options, world)); });
}

struct Refused {
  const char* what;
  std::function<void(TrainOptions&)> change;
  int world;
  const char* message;  // part of it
};

TEST(Plan, EveryFaultIsOneLineThatNamesTheValueAndTheLegalOnes) {
  const std::vector<Refused> table = {
      {"tp", [](auto& o) { o.tp = 3; }, 3, "tp 3 does not divide the 4 heads; legal tp: 1, 2, 4"},
      {"pp", [](auto& o) { o.pp = 5; }, 5, "legal pp: 1 to 4"},
      {"batch", [](auto& o) { o.batch = 7; }, 2, "batch 7 is not a multiple of dp 2"},
      {"batch", [](auto& o) { o.batch = 0; }, 1, "batch 0; legal values: 1 to"},
      {"batch", [](auto& o) { o.batch = std::int64_t{1} << 40; }, 1, "legal values: 1 to"},
      {"microbatches", [](auto& o) { o.microbatches = 3; }, 1, "legal microbatches: 1, 2, 4, 8"},
      {"microbatches", [](auto& o) { o.microbatches = -1; }, 1, "microbatches -1; legal values"},
      {"ranks", [](auto& o) { o.tp = 2; }, 3, "3"},
      {"ranks", [](auto& o) { o.tp = 2, o.pp = 2, o.dp = 2; }, 4, "4 ranks"},
      {"seq", [](auto& o) { o.seq = 257; }, 1, "256 positions"},
      {"seq", [](auto& o) { o.seq = -1; }, 1, "seq -1; legal values"},
      {"dtype", [](auto& o) { o.dtype = "f16"; }, 1, "dtype 'f16'; legal values: f32, f64"},
      {"schedule", [](auto& o) { o.schedule = "2f2b"; }, 1, "legal values: gpipe, 1f1b"},
      {"chunks", [](auto& o) { o.schedule = "zb-v", o.chunks = 3; }, 1, "2 model chunks"},
      {"chunks", [](auto& o) { o.chunks = 2; }, 1, "1f1b"},
      {"chunks", [](auto& o) { o.schedule = "interleaved", o.chunks = 9; }, 1,
       "legal chunks: 1 to 4"},
      {"zero", [](auto& o) { o.zero = 4; }, 1, "zero 4; legal values: 0, 1"},
      {"cp", [](auto& o) { o.cp = 2, o.seq = 6; }, 2, "nearest legal: 4 and 8"},
      {"cp", [](auto& o) { o.cp = 3, o.seq = 7, o.cp_mode = "striped"; }, 3, "multiple of 3"},
      {"cp", [](auto& o) { o.cp = 8, o.cp_mode = "ulysses"; }, 8, "legal cp: 1, 2, 4"},
      {"cp_mode", [](auto& o) { o.cp_mode = "ring"; }, 1, "zigzag, contiguous, striped, ulysses"},
      {"sequence", [](auto& o) { o.tp = 2, o.seq = 5, o.batch = 1, o.sequence_parallel = true; }, 2,
       "5 rows of a microbatch"},
      {"kv", [](auto& o) { o.model = "llama-small", o.tp = 3; }, 3, "legal tp: 1, 2, 4, 8"},
      {"dropout", [](auto& o) { o.dropout = 1; }, 1, "dropout 1; legal values: 0 to below 1"},
      {"dropout", [](auto& o) { o.dropout = NAN; }, 1, "dropout nan; legal values"},
      {"recompute", [](auto& o) { o.recompute = "all"; }, 1, "none, selective or full"},
      {"recompute", [](auto& o) { o.recompute = "none,full,none"; }, 1, "3 layers of 4"},
      {"order", [](auto& o) { o.order = "tp,dp,xx"; }, 1, "xx"},
      {"lr", [](auto& o) { o.lr = -1; }, 1, "lr -1; legal values"},
      {"lr", [](auto& o) { o.lr = NAN; }, 1, "lr nan; legal values"},
      {"min_lr", [](auto& o) { o.min_lr = 1; }, 1, "--min-lr 1 is above --lr"},
      {"beta1", [](auto& o) { o.beta1 = 1; }, 1, "beta1 1; legal values"},
      {"beta2", [](auto& o) { o.beta2 = -0.5; }, 1, "beta2 -0.5; legal values"},
      {"eps", [](auto& o) { o.eps = 0; }, 1, "eps 0; legal values"},
      {"clip", [](auto& o) { o.clip = -1; }, 1, "clip -1; legal values"},
      {"weight_decay", [](auto& o) { o.weight_decay = -1; }, 1, "weight-decay -1; legal values"},
      {"steps", [](auto& o) { o.steps = -1; }, 1, "steps -1; legal values"},
      {"warmup", [](auto& o) { o.warmup = -1; }, 1, "warmup -1; legal values"},
      {"warmup", [](auto& o) { o.warmup = o.steps + 1; }, 1, "legal values: 0 to 100, the steps"},
      {"rounding", [](auto& o) { o.rounding = "up"; }, 1,
       "'up'; legal values: nearest, stochastic"},
      {"rounding", [](auto& o) { o.rounding = "stochastic"; }, 1, "legal: --dtype bf16"},
      {"threads", [](auto& o) { o.threads = -1; }, 1, "threads -1; legal values"},
      {"save_every", [](auto& o) { o.save_every = -1; }, 1, "save-every -1; legal values"},
      {"eval_every", [](auto& o) { o.eval_every = -1; }, 1, "eval-every -1; legal values"},
      {"eval_windows", [](auto& o) { o.eval_windows = 0; }, 1, "eval-windows 0; legal values"},
      {"validation", [](auto& o) { o.validation_fraction = 1; }, 1, "validation-fraction 1; legal"},
      {"init", [](auto& o) { o.init = "a", o.resume = "b"; }, 1, "exclude each other"},
      {"model", [](auto& o) { o.model = "gpt5"; }, 1, "byte-tiny"},
  };
  for (const Refused& row : table) {
    const std::string message = refusal(row.change, row.world);
    EXPECT_NE(message.find(row.message), std::string::npos) << row.what << ": '" << message << "'";
  }
}

TEST(Plan, DefaultsAreFilledIn) {
  TrainOptions options;
  options.pp = 2;
  options.batch = 16;
  const TrainPlan plan = make_plan(options, 4);
  EXPECT_EQ(plan.options.dp, 2);
  EXPECT_EQ(plan.options.microbatches, 4);
  EXPECT_EQ(plan.microbatch.batch, 2);
  EXPECT_EQ(plan.options.seq, plan.config.max_time);
  EXPECT_EQ(plan.options.min_lr, options.lr / 10);
}

TEST(Plan, AnyOrderOfTheAxesIsLegal) {
  for (const char* order : {"tp,cp,pp,dp", "dp,pp,tp,cp", "pp,tp,dp,cp"}) {
    TrainOptions options;
    options.tp = options.pp = 2;
    options.order = order;
    EXPECT_EQ(make_plan(options, 8).grid.order(), order);
  }
}

}  // namespace
}  // namespace sinew::model
