// Laws of the cross entropy parts: every version against the f64 formula, any split of the
// vocabulary gives the loss and gradient of the whole, padding never enters, backward against
// differences.
#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/registry.h"
#include "tests/kernels/compare.h"

namespace sinew::kernels {
namespace {

constexpr double u = 0x1p-24;

// Loss and d_logits of whole rows by the textbook formula, in f64.
struct Exact {
  std::vector<double> loss;
  std::vector<double> gradient;
};

Exact formula(std::int64_t rows, std::int64_t vocabulary, const std::vector<double>& logits,
              const std::vector<std::int32_t>& targets, double scale) {
  Exact e;
  e.gradient.resize(logits.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = logits.data() + r * vocabulary;
    double top = -INFINITY;
    for (std::int64_t c = 0; c < vocabulary; ++c) top = std::max(top, row[c]);
    double sum = 0;
    for (std::int64_t c = 0; c < vocabulary; ++c) sum += std::exp(row[c] - top);
    const std::int32_t target = targets[static_cast<std::size_t>(r)];
    e.loss.push_back(target < 0 ? 0.0 : std::log(sum) + top - row[target]);
    for (std::int64_t c = 0; c < vocabulary && target >= 0; ++c) {
      e.gradient[static_cast<std::size_t>(r * vocabulary + c)] =
          (std::exp(row[c] - top) / sum - (c == target ? 1.0 : 0.0)) * scale;
    }
  }
  return e;
}

// The loss and gradient that `parts` ranks compute, with the reductions between the parts done
// here. Each rank's columns are padded by `padding`, filled with a value that would ruin everything
// if it counted.
template <typename T>
void run_parts(const CrossEntropyFunctions<T>& f, std::int64_t rows, std::int64_t vocabulary,
               const Guarded<T>& logits, const std::vector<std::int32_t>& targets, double scale,
               std::int64_t columns, std::vector<double>& loss, std::vector<double>& gradient) {
  using W = Wide<T>;
  const std::int64_t parts = (vocabulary + columns - 1) / columns;
  std::vector<Guarded<T>> own;
  std::vector<CrossEntropyShape> shapes;
  std::vector<W> row_max(static_cast<std::size_t>(rows), -std::numeric_limits<W>::infinity());
  std::vector<W> sum_exp(row_max.size()), target_logit(row_max.size()), part(row_max.size()),
      part_target(row_max.size()), losses(row_max.size());
  for (std::int64_t p = 0; p < parts; ++p) {
    shapes.push_back({rows, columns, p * columns, vocabulary});
    own.emplace_back(rows * columns, p + 1);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t global = p * columns + c;
        own.back()[r * columns + c] =
            global < vocabulary ? logits[r * vocabulary + global] : narrow<T>(W{1000});
      }
    }
    f.max(shapes.back(), own.back().data(), part.data());
    for (std::size_t r = 0; r < row_max.size(); ++r) row_max[r] = std::max(row_max[r], part[r]);
  }
  for (std::size_t p = 0; p < own.size(); ++p) {
    f.sums(shapes[p], own[p].data(), targets.data(), row_max.data(), part.data(),
           part_target.data());
    for (std::size_t r = 0; r < row_max.size(); ++r) {
      sum_exp[r] += part[r];
      target_logit[r] += part_target[r];
    }
  }
  cross_entropy_loss(rows, targets.data(), sum_exp.data(), target_logit.data(), losses.data());
  loss.assign(losses.begin(), losses.end());
  gradient.assign(static_cast<std::size_t>(rows * vocabulary), 0.0);
  for (std::size_t p = 0; p < own.size(); ++p) {
    f.backward(shapes[p], own[p].data(), targets.data(), row_max.data(), sum_exp.data(),
               static_cast<W>(scale));
    EXPECT_TRUE(own[p].is_intact());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t global = shapes[p].first_column + c;
        const double value = exact(own[p][r * columns + c]);
        if (global < vocabulary) {
          gradient[static_cast<std::size_t>(r * vocabulary + global)] = value;
        } else {
          EXPECT_EQ(value, 0.0);
        }
      }
    }
  }
}

template <typename T>
class CrossEntropyVersions : public testing::Test {};
using Types = testing::Types<float, bf16>;
TYPED_TEST_SUITE(CrossEntropyVersions, Types);

TYPED_TEST(CrossEntropyVersions, EverySplitGivesTheLossAndGradientOfTheWhole) {
  using T = TypeParam;
  for (const auto& version : versions_of<CrossEntropyFunctions<T>>()) {
    std::mt19937_64 random(1);
    ErrorTally losses("loss " + std::string(version.version));
    ErrorTally gradients("d_logits " + std::string(version.version));
    for (const std::int64_t vocabulary : {1, 2, 15, 16, 17, 33, 257, 1021, 3001}) {
      for (const std::int64_t parts : {1, 2, 3, 4}) {
        for (const std::int64_t padding : {0, 5}) {
          const std::int64_t rows = 3;
          const std::int64_t columns = (vocabulary + parts - 1) / parts + padding;
          const auto logits = normal_values<T>(rows * vocabulary, random, 4.0);
          std::vector<std::int32_t> targets;
          for (std::int64_t r = 0; r < rows; ++r) {
            targets.push_back(
                static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary)));
          }
          targets[1] = vocabulary % 2 == 0 ? -1 : targets[1];
          const double scale = 0.25;
          const Exact e = formula(rows, vocabulary, exact(logits), targets, scale);
          std::vector<double> loss, gradient;
          run_parts(*version.functions, rows, vocabulary, logits, targets, scale, columns, loss,
                    gradient);
          // Logits lie within 40 of their maximum: a relative error of u (4 + 80) in each
          // exponential, of bf16 52 u more, and the sums' u (n/1024 + 40); the loss adds the
          // rounding of two values of at most 40.
          const double relative =
              u * (84 + (kIsHalf<T> ? 52 : 0) + static_cast<double>(vocabulary) / 1024 + 40);
          for (std::size_t r = 0; r < loss.size(); ++r) {
            losses.add(loss[r], e.loss[r], targets[r] < 0 ? 0.0 : relative + 2 * u * 40);
          }
          for (std::size_t i = 0; i < gradient.size(); ++i) {
            const double probability = std::abs(e.gradient[i]);
            gradients.add(gradient[i], e.gradient[i],
                          2 * relative * std::min(scale, probability + scale * 1e-3) + u * scale +
                              storing_roundoff<T>() * probability);
          }
        }
      }
    }
    losses.expect_tight(0.005);
    gradients.expect_tight(0.02);
  }
}

TYPED_TEST(CrossEntropyVersions, LargeLogitsNeitherOverflowNorLoseTheLoss) {
  using T = TypeParam;
  for (const auto& version : versions_of<CrossEntropyFunctions<T>>()) {
    Guarded<T> logits(40);
    for (std::int64_t i = 0; i < 40; ++i) logits[i] = narrow<T>(Wide<T>{-30000});
    logits[7] = narrow<T>(Wide<T>{30000});
    std::vector<double> loss, gradient;
    run_parts(*version.functions, 1, 40, logits, {7}, 1.0, 10, loss, gradient);
    EXPECT_EQ(loss[0], 0.0);
    for (const double value : gradient) EXPECT_EQ(value, 0.0);
    run_parts(*version.functions, 1, 40, logits, {8}, 1.0, 40, loss, gradient);
    EXPECT_NEAR(loss[0], 60000.0, kIsHalf<T> ? 300.0 : 0.01);
    EXPECT_EQ(gradient[7], 1.0);
    EXPECT_EQ(gradient[8], -1.0);
  }
}

TYPED_TEST(CrossEntropyVersions, ANaNLogitMakesItsRowsLossNaN) {
  using T = TypeParam;
  for (const auto& version : versions_of<CrossEntropyFunctions<T>>()) {
    for (const std::int64_t place : {0, 16, 17, 38, 39}) {
      std::mt19937_64 random(2);
      auto logits = normal_values<T>(2 * 40, random);
      logits[40 + place] = narrow<T>(NAN);
      std::vector<double> loss, gradient;
      run_parts(*version.functions, 2, 40, logits, {1, 1}, 1.0, 40, loss, gradient);
      EXPECT_FALSE(std::isnan(loss[0]));
      EXPECT_TRUE(std::isnan(loss[1])) << version.version << " " << place;
    }
  }
}

TEST(CrossEntropy, BackwardIsTheDerivative) {
  std::mt19937_64 random(3);
  const CrossEntropyShape shape{2, 9, 0, 8};
  auto logits = exact(normal_values<double>(18, random));
  const std::vector<std::int32_t> targets = {3, 7};
  std::vector<double> row_max(2), sum_exp(2), target_logit(2), loss(2);
  const auto mean_loss = [&] {
    cross_entropy_max(shape, logits.data(), row_max.data());
    cross_entropy_sums(shape, logits.data(), targets.data(), row_max.data(), sum_exp.data(),
                       target_logit.data());
    cross_entropy_loss(2, targets.data(), sum_exp.data(), target_logit.data(), loss.data());
    return (loss[0] + loss[1]) / 2;
  };
  std::vector<double> expected;
  for (double& logit : logits) expected.push_back(difference(&logit, mean_loss));
  mean_loss();
  cross_entropy_backward(shape, logits.data(), targets.data(), row_max.data(), sum_exp.data(), 0.5);
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-9);
}

TEST(CrossEntropy, ThreadCountChangesNoBits) {
  std::mt19937_64 random(4);
  const CrossEntropyShape shape{61, 2053, 0, 2050};
  const auto logits = normal_values<float>(shape.rows * shape.columns, random);
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < shape.rows; ++r)
    targets.push_back(static_cast<std::int32_t>(random() % 2050));
  ThreadPool pool(3);
  std::vector<std::vector<double>> results;
  for (const Threads threads : {Threads{}, Threads{2, nullptr}, Threads{3, &pool}}) {
    Guarded<float> row_max(shape.rows), sum_exp(shape.rows), target_logit(shape.rows);
    Guarded<float> gradient = logits;
    cross_entropy_max(shape, logits.data(), row_max.data(), threads);
    cross_entropy_sums(shape, logits.data(), targets.data(), row_max.data(), sum_exp.data(),
                       target_logit.data(), threads);
    cross_entropy_backward(shape, gradient.data(), targets.data(), row_max.data(), sum_exp.data(),
                           0.1F, threads);
    for (const auto* out : {&row_max, &sum_exp, &target_logit, &gradient}) {
      results.push_back(exact(*out));
    }
  }
  for (std::size_t i = 4; i < results.size(); ++i) EXPECT_EQ(results[i], results[i % 4]);
}

}  // namespace
}  // namespace sinew::kernels
