// NaN and infinity in the kernels whose other tests draw finite numbers only: what goes in comes
// out in its own element, row or column and nowhere else, and follows the limit of the formula.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/mixed_adamw.h"
#include "kernels/registry.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "tests/kernels/adamw_options.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/gemm_problem.h"

namespace sinew::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kSpecial[] = {kNan, kInfinity, -kInfinity};

template <typename T>
class SpecialValues : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(SpecialValues, Types);

// Exactly the elements that `is_spoilt` names are not finite.
template <typename T>
void expect_spoilt(const Guarded<T>& x, const std::function<bool(std::int64_t)>& is_spoilt,
                   const std::string& what) {
  for (std::int64_t i = 0; i < x.count(); ++i)
    ASSERT_EQ(!std::isfinite(exact(x[i])), is_spoilt(i)) << what << " at " << i;
}

// Places in a row of 37: the first, in a full vector, the last of a tail.
constexpr std::int64_t kColumns = 37;
constexpr NormShape kNorm{3, kColumns};
constexpr std::int64_t kPlaces[] = {0, 18, 36};

bool is_row_1(std::int64_t i) { return i / kColumns == 1; }

TYPED_TEST(SpecialValues, StayInTheRowOfANormAndInTheColumnOfItsWeightsGradient) {
  using T = TypeParam;
  std::mt19937_64 random(1);
  const auto weight = normal_values<T>(kColumns, random);
  const auto x = normal_values<T>(3 * kColumns, random);
  const auto check = [&](const std::string& name, const auto& forward, const auto& backward) {
    for (const std::int64_t place : kPlaces) {
      for (const float special : kSpecial) {
        const std::string what = name + " of " + std::to_string(special);
        Guarded<T> spoilt = x;
        spoilt[kColumns + place] = narrow<T>(special);
        Guarded<T> y(3 * kColumns);
        Guarded<float> statistics(6);
        forward(spoilt, y, statistics);
        for (std::int64_t i = 0; i < y.count(); ++i) {
          if (!is_row_1(i)) {
            ASSERT_TRUE(std::isfinite(exact(y[i]))) << what << " " << i;
          }
        }
        EXPECT_TRUE(std::isnan(exact(y[kColumns + place]))) << what;
        forward(x, y, statistics);
        Guarded<T> d_y = x;
        d_y[kColumns + place] = narrow<T>(special);
        Guarded<T> d_x(3 * kColumns);
        Guarded<float> d_weight(kColumns);
        backward(d_y, x, statistics, d_x, d_weight);
        expect_spoilt(d_x, is_row_1, what + " d_x");
        expect_spoilt(
            d_weight, [&](std::int64_t i) { return i == place; }, what + " d_weight");
      }
    }
  };
  for (const auto& version : versions_of<LayerNormFunctions<T>>()) {
    const auto& f = *version.functions;
    check(
        "layer norm " + std::string(version.version),
        [&](const Guarded<T>& in, Guarded<T>& y, Guarded<float>& s) {
          f.forward(kNorm, in.data(), weight.data(), weight.data(), 1e-5F, y.data(), s.data(),
                    s.data() + 3);
        },
        [&](const Guarded<T>& d_y, const Guarded<T>& in, const Guarded<float>& s, Guarded<T>& d_x,
            Guarded<float>& d_weight) {
          Guarded<float> d_bias(kColumns);
          f.backward(kNorm, d_y.data(), in.data(), weight.data(), s.data(), s.data() + 3,
                     Write::kAssign, d_x.data(), d_weight.data(), d_bias.data());
        });
  }
  for (const auto& version : versions_of<RmsNormFunctions<T>>()) {
    const auto& f = *version.functions;
    check(
        "RMS norm " + std::string(version.version),
        [&](const Guarded<T>& in, Guarded<T>& y, Guarded<float>& s) {
          f.forward(kNorm, in.data(), weight.data(), 1e-5F, y.data(), s.data());
        },
        [&](const Guarded<T>& d_y, const Guarded<T>& in, const Guarded<float>& s, Guarded<T>& d_x,
            Guarded<float>& d_weight) {
          f.backward(kNorm, d_y.data(), in.data(), weight.data(), s.data(), Write::kAssign,
                     d_x.data(), d_weight.data());
        });
  }
}

TYPED_TEST(SpecialValues, StayInTheirElementOfASumAndInTheColumnOfABiasGradient) {
  using T = TypeParam;
  std::mt19937_64 random(2);
  const auto x = normal_values<T>(3 * kColumns, random);
  for (const auto& version : versions_of<ElementwiseFunctions<T>>()) {
    const auto& f = *version.functions;
    const std::string what(version.version);
    for (const std::int64_t place : kPlaces) {
      for (const float special : kSpecial) {
        Guarded<T> spoilt = x;
        spoilt[kColumns + place] = narrow<T>(special);
        Guarded<T> y = x;
        f.add(y.data(), spoilt.data(), y.count());
        expect_spoilt(
            y, [&](std::int64_t i) { return i == kColumns + place; }, what + " add");
        Guarded<float> d_bias(kColumns);
        f.bias_backward(spoilt.data(), d_bias.data(), 3, kColumns, 0, kColumns);
        expect_spoilt(
            d_bias, [&](std::int64_t i) { return i == place; }, what + " bias_backward");
        const double sum = f.sum_of_squares(spoilt.data(), spoilt.count());
        EXPECT_TRUE(std::isnan(special) ? std::isnan(sum) : sum == kInfinity) << what;
        Guarded<T> bias(kColumns);
        bias[place] = narrow<T>(special);
        y = x;
        f.add_bias(y.data(), bias.data(), 3, kColumns);
        expect_spoilt(
            y, [&](std::int64_t i) { return i % kColumns == place; }, what + " add_bias");
      }
    }
    Guarded<T> up(kColumns);
    Guarded<T> down(kColumns);
    up[36] = narrow<T>(kInfinity);
    down[36] = narrow<T>(-kInfinity);
    f.add(up.data(), down.data(), kColumns);
    EXPECT_TRUE(std::isnan(exact(up[36]))) << what;
  }
}

TYPED_TEST(SpecialValues, GoWithTheirTokenThroughTheEmbedding) {
  using T = TypeParam;
  std::mt19937_64 random(3);
  const EmbeddingShape shape{1, 4, kColumns, 0, 5};
  const std::vector<std::int32_t> tokens = {1, 3, 0, 3};
  for (const auto& version : versions_of<EmbeddingFunctions<T>>()) {
    const std::string what(version.version);
    for (const std::int64_t place : kPlaces) {
      auto table = normal_values<T>(5 * kColumns, random);
      table[3 * kColumns + place] = narrow<T>(kNan);
      Guarded<T> y(4 * kColumns);
      version.functions->forward(shape, tokens.data(), table.data(), nullptr, y.data(), 0, 4);
      expect_spoilt(
          y, [&](std::int64_t i) { return i % kColumns == place && tokens[i / kColumns] == 3; },
          what + " forward");
      auto d_y = normal_values<T>(4 * kColumns, random);
      d_y[2 * kColumns + place] = narrow<T>(kNan);
      Guarded<float> d_table(5 * kColumns);
      version.functions->backward(shape, tokens.data(), d_y.data(), d_table.data(), nullptr, 0,
                                  kColumns);
      expect_spoilt(
          d_table, [&](std::int64_t i) { return i == place; }, what + " backward");
    }
  }
}

TYPED_TEST(SpecialValues, SpoilThePairThatTurnsTogether) {
  using T = TypeParam;
  std::mt19937_64 random(4);
  constexpr std::int64_t kDim = 74;
  const RopeShape shape{1, 2, 1, kDim};
  std::vector<float> cosine(kDim);
  std::vector<float> sine(kDim);
  rope_table<float>(std::vector<std::int32_t>{3, 5}, kDim, 10000.0, cosine.data(), sine.data());
  for (const auto& version : versions_of<RopeFunctions<T>>())
    for (const std::int64_t place : kPlaces)
      for (const Turn turn : {Turn::kForward, Turn::kBack}) {
        auto x = normal_values<T>(2 * kDim, random);
        x[kDim + place] = narrow<T>(kNan);
        version.functions->turn(shape, {x.data(), 2 * kDim, kDim}, cosine.data(), sine.data(), turn,
                                0, 2);
        expect_spoilt(
            x, [&](std::int64_t i) { return i >= kDim && i % 37 == place; },
            std::string(version.version));
      }
}

// Dropped is 0, whatever it was.
TYPED_TEST(SpecialValues, AreKeptOrDroppedLikeOthers) {
  using T = TypeParam;
  constexpr DropoutShape kShape{5, 77, 0, 0, 77};
  const RandomStream random{};
  const std::uint32_t threshold = drop_threshold(0.3);
  for (const auto& version : versions_of<DropoutFunctions<T>>()) {
    const std::string what(version.version);
    Guarded<T> ones(5 * 77);
    for (std::int64_t i = 0; i < ones.count(); ++i) ones[i] = narrow<T>(1.0F);
    Guarded<T> mask(5 * 77);
    version.functions->assign(random, threshold, 1.0F, kShape, ones.data(), mask.data());
    for (const float special : kSpecial) {
      Guarded<T> x(5 * 77);
      for (std::int64_t i = 0; i < x.count(); ++i) x[i] = narrow<T>(special);
      Guarded<T> y(5 * 77);
      version.functions->assign(random, threshold, 1.5F, kShape, x.data(), y.data());
      expect_spoilt(
          y, [&](std::int64_t i) { return exact(mask[i]) != 0; }, what);
      y = ones;
      version.functions->add(random, threshold, 1.5F, kShape, x.data(), y.data());
      expect_spoilt(
          y, [&](std::int64_t i) { return exact(mask[i]) != 0; }, what + " add");
    }
  }
}

// A logit of -infinity, a masked token, has no share of the softmax; one of +infinity has no limit.
TYPED_TEST(SpecialValues, OfLogitsMaskATokenOrSpoilTheRow) {
  using T = TypeParam;
  const CrossEntropyShape shape{2, kColumns, 0, kColumns};
  const std::vector<std::int32_t> targets = {5, 5};
  for (const auto& version : versions_of<CrossEntropyFunctions<T>>()) {
    const auto& f = *version.functions;
    const auto run = [&](Guarded<T>& logits) {
      Guarded<float> row_max(2), sum_exp(2), target(2), loss(2);
      f.max(shape, logits.data(), row_max.data());
      f.sums(shape, logits.data(), targets.data(), row_max.data(), sum_exp.data(), target.data());
      cross_entropy_loss<float>(2, targets.data(), sum_exp.data(), target.data(), loss.data());
      f.backward(shape, logits.data(), targets.data(), row_max.data(), sum_exp.data(), 1.0F);
      return loss;
    };
    for (const std::int64_t place : kPlaces) {
      std::mt19937_64 random(5);
      const auto logits = normal_values<T>(2 * kColumns, random);
      Guarded<T> masked = logits;
      masked[kColumns + place] = narrow<T>(-kInfinity);
      Guarded<T> small = logits;  // far enough below to add nothing
      small[kColumns + place] = narrow<T>(-1000.0F);
      const auto loss = run(masked);
      const auto expected = run(small);
      EXPECT_EQ(exact(loss), exact(expected)) << version.version;
      EXPECT_EQ(exact(masked), exact(small)) << version.version;
      Guarded<T> infinite = logits;
      infinite[kColumns + place] = narrow<T>(kInfinity);
      const auto spoilt = run(infinite);
      EXPECT_TRUE(std::isfinite(spoilt[0]) && std::isnan(spoilt[1])) << version.version;
    }
  }
}

TEST(SpecialGradients, SpoilTheirElementOfAnAdamWStepOnly) {
  for (const std::int64_t place : kPlaces)
    for (const float special : kSpecial) {
      std::mt19937_64 random(6);
      auto g = normal_values<float>(kColumns, random);
      g[place] = special;
      const auto is_place = [&](std::int64_t i) { return i == place; };
      for (const auto& version : versions_of<AdamWFunctions<float>>()) {
        Guarded<float> w(kColumns), m(kColumns), v(kColumns);
        version.functions->step(options_at(1), kColumns, g.data(), w.data(), m.data(), v.data());
        for (const auto* x : {&w, &m, &v}) expect_spoilt(*x, is_place, "adamw");
      }
      for (const auto& version : versions_of<MixedAdamWFunctions>()) {
        Guarded<float> master(kColumns), m(kColumns), v(kColumns);
        Guarded<bf16> w(kColumns);
        version.functions->with_master(options_at(1), kColumns, g.data(), master.data(), w.data(),
                                       m.data(), v.data());
        for (const auto* x : {&master, &m, &v}) expect_spoilt(*x, is_place, "with_master");
        expect_spoilt(w, is_place, "with_master");
        Guarded<float> m2(kColumns), v2(kColumns);
        Guarded<bf16> w2(kColumns);
        version.functions->stochastic(options_at(1), {}, 0, kColumns, g.data(), w2.data(),
                                      m2.data(), v2.data());
        expect_spoilt(w2, is_place, "stochastic");
      }
    }
}

TEST(SpecialValuesOfEpilogues, StayInTheirElementOrColumnAndFollowTheLimits) {
  const GemmShape s = make_shape(3, kColumns, 2, Form::kPlain, Form::kPlain);
  const std::vector<float> a(6, 1.0F);
  const std::vector<float> b(2 * kColumns, 0.5F);
  for (const auto& version : versions_of<GemmFunctions<float>>())
    for (const std::int64_t place : kPlaces)
      for (const float special : kSpecial) {
        const auto multiply = [&](const Epilogue<float>& epilogue) {
          Guarded<float> c(3 * kColumns);
          version.functions->run(
              {.shape = s, .a = a.data(), .b = b.data(), .c = c.data(), .epilogue = epilogue}, {});
          return c;
        };
        Guarded<float> bias(kColumns);
        bias[place] = special;
        Guarded<float> beside(3 * kColumns);
        beside[kColumns + place] = special;
        const std::string what = std::string(version.version) + " " + std::to_string(special);
        const auto in_column = [&](std::int64_t i) { return i % kColumns == place; };
        const auto in_place = [&](std::int64_t i) { return i == kColumns + place; };
        expect_spoilt(multiply({.bias = bias.data()}), in_column, what + " bias");
        expect_spoilt(multiply({.residual = {beside.data(), kColumns}}), in_place, what);
        expect_spoilt(multiply({.factor = {beside.data(), kColumns}}), in_place, what);
        // Or 0 to within 1e-32.
        const auto expect_limit = [&](float found, float above) {
          if (std::isnan(special) || special > 0) {
            EXPECT_TRUE(std::isnan(special) ? std::isnan(found) : found == above)
                << what << " gives " << found;
          } else {
            EXPECT_NEAR(found, 0, 1e-32) << what;
          }
        };
        for (const Activation activation : {Activation::kGelu, Activation::kSilu}) {
          const auto c = multiply({.bias = bias.data(), .activation = activation});
          for (std::int64_t row = 0; row < 3; ++row)
            expect_limit(c[row * kColumns + place], kInfinity);
        }
        for (const Activation activation : {Activation::kGeluGradient, Activation::kSiluGradient}) {
          const auto c = multiply({.activation = activation, .input = {beside.data(), kColumns}});
          expect_limit(c[kColumns + place], 1.0F);
        }
        Guarded<float> gated(3 * kColumns);
        multiply({.activation = Activation::kSiluGradient,
                  .input = {beside.data(), kColumns},
                  .gated = {gated.data(), kColumns}});
        expect_limit(gated[kColumns + place], kInfinity);
      }
  // Nor may a large finite number leave more than that.
  for (const auto& version : versions_of<GemmFunctions<float>>())
    for (const Activation activation : {Activation::kGelu, Activation::kSilu}) {
      const float z = -3e38F;
      const float one = 1;
      float y = 7;
      version.functions->run({.shape = make_shape(1, 1, 1, Form::kPlain, Form::kPlain),
                              .a = &z,
                              .b = &one,
                              .c = &y,
                              .epilogue = {.activation = activation}},
                             {});
      EXPECT_NEAR(y, 0, 1e-32) << version.version;
    }
}

TYPED_TEST(SpecialValues, OfAQueryOrItsGradientSpoilItsRowOfAttention) {
  using T = TypeParam;
  constexpr std::int64_t kTime = 150;
  constexpr std::int64_t kDim = 16;
  const AttentionShape shape{1, kTime, 1, 1, kDim};
  const KeySpan keys{kTime, 0};
  const Part pairs{0, 1};
  const auto view = [](auto& x) {
    return HeadView<std::remove_pointer_t<decltype(x.data())>>{x.data(), kTime * kDim, kDim};
  };
  const auto is_row_70 = [](std::int64_t i) { return i / kDim == 70; };
  for (const auto& version : versions_of<AttentionFunctions<T>>()) {
    std::mt19937_64 random(7);
    const auto k = normal_values<T>(kTime * kDim, random);
    const auto v = normal_values<T>(kTime * kDim, random);
    const auto start = normal_values<T>(kTime * kDim, random);
    for (const float special : kSpecial) {
      const std::string what = std::string(version.version) + " " + std::to_string(special);
      const auto forward = [&](const Guarded<T>& q, Guarded<float>& o) {
        std::vector<float> lse(kTime, -kInfinity);
        version.functions->forward(shape, keys, pairs, view(q), view(k), view(v), view(o),
                                   lse.data());
        return lse;
      };
      Guarded<T> q = start;
      q[70 * kDim + 3] = narrow<T>(special);
      Guarded<float> o(kTime * kDim);
      forward(q, o);
      expect_spoilt(o, is_row_70, what);
      o = Guarded<float>(kTime * kDim);
      const auto lse = forward(start, o);
      Guarded<T> d_o = start;
      d_o[70 * kDim + 3] = narrow<T>(special);
      std::vector<float> row_dot(kTime, 0.0F);
      Guarded<float> d_q(kTime * kDim), d_k(kTime * kDim), d_v(kTime * kDim);
      version.functions->backward(shape, keys, pairs, view(start), view(k), view(v), lse.data(),
                                  row_dot.data(), view(std::as_const(d_o)), view(d_q), view(d_k),
                                  view(d_v));
      expect_spoilt(d_q, is_row_70, what + " d_q");
    }
  }
}

}  // namespace
}  // namespace sinew::kernels
