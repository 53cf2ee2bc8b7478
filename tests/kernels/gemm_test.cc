// Laws of GEMM, for every type and version this processor runs: exact on whole numbers, within its
// error bound of f64 over generated shapes, forms, strides and factors; writes nothing but C; the
// same bits for an element wherever it lies and whatever the thread count.
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm_blocked.h"
#include "sched/base/partition.h"
#include "tests/kernels/gemm_problem.h"

namespace sinew::kernels {
namespace {

constexpr std::uint64_t kSeed = 20240702;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<GemmShape> generated_shapes() {
  std::vector<GemmShape> shapes;
  std::mt19937_64 random(kSeed);
  const std::int64_t sizes[] = {0,  1,  2,  3,  5,  7,  8,  13, 14, 15,
                                16, 17, 29, 31, 32, 33, 47, 64, 97};
  const std::int64_t depths[] = {0, 1, 2, 3, 15, 16, 17, 31, 64, 100, 513, 1023, 1024, 1025, 2049};
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  for (int i = 0; i < 120; ++i)
    shapes.push_back(make_shape(pick(sizes), pick(sizes), pick(depths),
                                random() % 2 == 0 ? Form::kPlain : Form::kTransposed,
                                random() % 2 == 0 ? Form::kPlain : Form::kTransposed,
                                static_cast<std::int64_t>(random() % 3)));
  // Several blocks of columns, with and without a partial last panel.
  for (const Form a_form : {Form::kPlain, Form::kTransposed})
    for (const Form b_form : {Form::kPlain, Form::kTransposed}) {
      shapes.push_back(make_shape(30, 600, 1025, a_form, b_form));
      shapes.push_back(make_shape(43, 389, 40, a_form, b_form, 1));
    }
  return shapes;
}

TEST(Gemm, PrintsTheVersionsThisProcessorCannotRun) {
  for (const KernelRow& row : kernel_rows())
    if (row.operation == "gemm" && !is_available(row))
      std::printf("gemm %s is not tested here: it needs %s\n", std::string(row.version).c_str(),
                  std::string(name_of(row.isa)).c_str());
  EXPECT_GE(versions_of<GemmFunctions<float>>().size(), 2U);
  EXPECT_GE(versions_of<GemmFunctions<bf16>>().size(), 2U);
  if (cpu().best != Isa::kPortable) {
    EXPECT_GE(versions_of<GemmFunctions<double>>().size(), 2U);
  }
}

// A B of whole numbers, row-major; B's elements are gathered once, since its stride may be any.
template <typename In>
std::vector<std::int32_t> whole_products(const GemmShape& s, const In* a, const In* b) {
  const auto columns = static_cast<std::size_t>(s.n);
  std::vector<std::int32_t> rows_of_b;
  for (std::int64_t k = 0; k < s.k; ++k)
    for (std::int64_t j = 0; j < s.n; ++j)
      rows_of_b.push_back(static_cast<std::int32_t>(widen(b_at(s, b, k, j))));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(s.m) * columns, 0);
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t k = 0; k < s.k; ++k) {
      const auto factor = static_cast<std::int32_t>(widen(a_at(s, a, i, k)));
      std::int32_t* sum = sums.data() + static_cast<std::size_t>(i) * columns;
      const std::int32_t* row = rows_of_b.data() + static_cast<std::size_t>(k) * columns;
      for (std::size_t j = 0; j < columns; ++j) sum[j] += factor * row[j];
    }
  return sums;
}

// Sums of products of whole numbers below 2^24 have no rounding in any order but the last one.
TEST(Gemm, IsExactOnWholeNumbers) {
  for_each_vector_type([]<typename In, typename Out>() {
    std::mt19937_64 random(kSeed);
    for (const GemmShape& s : generated_shapes()) {
      const Operands<In, Out> start(s, random, Values::kWhole);
      const std::vector<std::int32_t> sums = whole_products(s, start.a.data(), start.b.data());
      std::vector<float> expected;
      for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j) {
          const auto c = static_cast<std::int32_t>(widen(start.c[i * s.c_stride + j]));
          expected.push_back(
              static_cast<float>(2 * sums[static_cast<std::size_t>(i * s.n + j)] - c));
        }
      for (const auto& version : versions_of<GemmFunctions<In>>()) {
        Operands<In, Out> x = start;
        run(*version.functions, x.call(s, 2, -1));
        x.expect_untouched_outside(s);
        for (std::int64_t i = 0; i < s.m; ++i)
          for (std::int64_t j = 0; j < s.n; ++j)
            ASSERT_EQ(widen(x.c[i * s.c_stride + j]),
                      widen(narrow<Out>(expected[static_cast<std::size_t>(i * s.n + j)])))
                << version.version << " " << describe(s) << " at " << i << ", " << j;
      }
    }
  });
}

// The bound of gemm.h, (k + 2) u (|alpha| |A||B| + |beta C|), with |A||B| from f64, and half a unit
// of a bf16 C; of f64 twice, since the plain version errs as well. An f32 sum that were never worse
// than a hundredth of the bound would mean the oracle shares its arithmetic.
TEST(Gemm, StaysWithinItsErrorBoundOfF64) {
  for_each_vector_type([]<typename In, typename Out>() {
    constexpr double kUnit = std::is_same_v<In, double> ? 0x1p-52 : 0x1p-24;
    constexpr double kRounding = std::is_same_v<Out, bf16> ? 0x1p-8 : 0;
    std::mt19937_64 random(kSeed + 1);
    const float factors[][2] = {{1, 0}, {1, 1}, {-0.75F, 0.5F}, {0, 0.5F}, {1, -3}};
    for (const GemmShape& s : generated_shapes()) {
      const Operands<In, Out> start(s, random, Values::kReal);
      const auto& factor = factors[random() % std::size(factors)];
      std::vector<double> exact = widened(start.c);
      std::vector<double> magnitude = magnitudes(exact);
      const auto a = widened(start.a);
      const auto b = widened(start.b);
      const auto& plain = gemm_plain<double>();
      plain.run({.shape = s,
                 .alpha = factor[0],
                 .a = a.data(),
                 .b = b.data(),
                 .beta = factor[1],
                 .c = exact.data()},
                {});
      plain.run({.shape = s,
                 .alpha = std::fabs(factor[0]),
                 .a = magnitudes(a).data(),
                 .b = magnitudes(b).data(),
                 .beta = std::fabs(factor[1]),
                 .c = magnitude.data()},
                {});
      for (const auto& version : versions_of<GemmFunctions<In>>()) {
        Operands<In, Out> x = start;
        if (factor[1] == 0)
          for (std::int64_t i = 0; i < s.m; ++i)
            std::fill_n(x.c.data() + i * s.c_stride, s.n, narrow<Out>(kNan));
        run(*version.functions, x.call(s, factor[0], factor[1]));
        x.expect_untouched_outside(s);
        double worst = 0;
        for (std::int64_t i = 0; i < s.m; ++i)
          for (std::int64_t j = 0; j < s.n; ++j) {
            const auto at = static_cast<std::size_t>(i * s.c_stride + j);
            const double error = std::fabs(widen(x.c[static_cast<std::int64_t>(at)]) - exact[at]);
            const double bound =
                static_cast<double>(s.k + 2) * kUnit * magnitude[at] * (1 + kRounding) +
                kRounding * std::fabs(exact[at]);
            ASSERT_LE(error, bound * 1.0001)
                << version.version << " " << describe(s) << " at " << i << ", " << j;
            if (bound > 0) worst = std::max(worst, error / bound);
          }
        if (s.m * s.n > 500 && s.k > 0 && s.k < 100 && factor[0] != 0 && kRounding == 0 &&
            !std::is_same_v<In, double>) {
          EXPECT_GE(worst, 0.01) << version.version << " " << describe(s);
        }
      }
    }
  });
}

TEST(Gemm, GivesAnElementTheSameBitsWhereverItLies) {
  for_each_vector_type([]<typename In, typename Out>() {
    std::mt19937_64 random(kSeed + 2);
    for (const Form a_form : {Form::kPlain, Form::kTransposed})
      for (const Form b_form : {Form::kPlain, Form::kTransposed}) {
        const GemmShape s = make_shape(45, 140, 1100, a_form, b_form);
        const Operands<In, Out> start(s, random, Values::kReal);
        for (const auto& version : versions_of<GemmFunctions<In>>()) {
          Operands<In, Out> whole = start;
          run(*version.functions, whole.call(s, 0.5F, 1.5F));
          for (int trial = 0; trial < 4; ++trial) {
            const auto row = static_cast<std::int64_t>(random() % 45);
            const auto column = static_cast<std::int64_t>(random() % 140);
            Operands<In, Out> x = start;
            auto part = x.call(s, 0.5F, 1.5F);
            part.shape.m = 1 + static_cast<std::int64_t>(random() % (45 - row));
            part.shape.n = 1 + static_cast<std::int64_t>(random() % (140 - column));
            part.a += row * (a_form == Form::kPlain ? s.a_stride : 1);
            part.b += column * (b_form == Form::kPlain ? 1 : s.b_stride);
            part.c += row * s.c_stride + column;
            run(*version.functions, part);
            for (std::int64_t i = 0; i < part.shape.m; ++i) {
              const std::int64_t at = (row + i) * s.c_stride + column;
              ASSERT_EQ(0, std::memcmp(&x.c[at], &whole.c[at],
                                       static_cast<std::size_t>(part.shape.n) * sizeof(Out)))
                  << version.version << " " << describe(part.shape);
            }
          }
        }
      }
  });
}

template <typename T>
void expect_thread_count_does_not_matter() {
  std::mt19937_64 random(kSeed + 3);
  std::uniform_real_distribution<float> real(-1, 1);
  ThreadPool pool(3);
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{200, 70, 530}, {61, 400, 300}, {1, 3000, 600}}) {
    const GemmShape s = make_shape(m, n, k, Form::kPlain, Form::kTransposed);
    std::vector<T> a(static_cast<std::size_t>(m * k));
    std::vector<T> b(static_cast<std::size_t>(n * k));
    for (T& x : a) x = narrow<T>(real(random));
    for (T& x : b) x = narrow<T>(real(random));
    std::vector<T> one(static_cast<std::size_t>(m * n));
    GemmCall<T> call{.shape = s, .a = a.data(), .b = b.data(), .c = one.data()};
    gemm(call);
    for (const Threads threads : {Threads{.count = 2}, Threads{.count = 3, .pool = &pool},
                                  Threads{.count = 6}, Threads{.count = 7}}) {
      std::vector<T> many(one.size(), narrow<T>(7));
      call.c = many.data();
      gemm(call, threads);
      EXPECT_EQ(0, std::memcmp(one.data(), many.data(), one.size() * sizeof(T)))
          << threads.count << " threads, " << describe(s);
    }
  }
}

TEST(Gemm, GivesTheSameBitsForEveryThreadCount) {
  expect_thread_count_does_not_matter<float>();
  expect_thread_count_does_not_matter<double>();
  expect_thread_count_does_not_matter<bf16>();
}

// One special value in A spoils its row, one in B its column, and nothing else: zeros that pad a
// panel must not meet an infinity.
TEST(Gemm, PropagatesNanAndInfinityToTheirRowAndColumnOnly) {
  for_each_vector_type([]<typename In, typename Out>() {
    for (const float special : {kNan, kInfinity})
      for (const Form form : {Form::kPlain, Form::kTransposed})
        for (const auto& version : versions_of<GemmFunctions<In>>()) {
          const GemmShape s = make_shape(19, 37, 23, form, form);
          std::vector<In> a(19 * 23, narrow<In>(1));
          std::vector<In> b(23 * 37, narrow<In>(1));
          std::vector<Out> c(19 * 37, narrow<Out>(0));
          (form == Form::kPlain ? a[18 * 23 + 22] : a[22 * 19 + 18]) = narrow<In>(special);
          (form == Form::kPlain ? b[22 * 37 + 36] : b[36 * 23 + 22]) = narrow<In>(special);
          run(*version.functions,
              GemmCall<In, Out>{.shape = s, .a = a.data(), .b = b.data(), .c = c.data()});
          for (int i = 0; i < 19; ++i)
            for (int j = 0; j < 37; ++j)
              EXPECT_EQ(std::isfinite(widen(c[static_cast<std::size_t>(i * 37 + j)])),
                        i != 18 && j != 36)
                  << version.version << " at " << i << ", " << j;
        }
  });
}

TEST(Gemm, AcceptsNullOperandsWhenTheyAreEmpty) {
  for_each_vector_type([]<typename In, typename Out>() {
    for (const auto& version : versions_of<GemmFunctions<In>>()) {
      std::vector<Out> c(6, narrow<Out>(3));
      GemmCall<In, Out> call{
          .shape = make_shape(2, 3, 0, Form::kPlain, Form::kPlain), .beta = 0.5F, .c = c.data()};
      run(*version.functions, call);
      for (const Out x : c) EXPECT_EQ(widen(x), 1.5F) << version.version;
      call.beta = 0;
      run(*version.functions, call);
      for (const Out x : c) EXPECT_EQ(widen(x), 0.0F) << version.version;
      const std::vector<In> operand(12, narrow<In>(1));
      run(*version.functions,
          GemmCall<In, Out>{.shape = make_shape(0, 3, 4, Form::kPlain, Form::kPlain),
                            .b = operand.data()});
      run(*version.functions,
          GemmCall<In, Out>{.shape = make_shape(2, 0, 4, Form::kPlain, Form::kPlain),
                            .a = operand.data()});
    }
  });
}

TEST(GemmBlocking, FillsTheCachesItIsGivenAndNoMore) {
  for (const std::int64_t l2 : {256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20})
    for (const std::int64_t l3 : {2 << 20, 32 << 20, 256 << 20})
      for (const std::int64_t tile_columns : {8, 16, 32})
        for (const std::int64_t words : {0, 1, 256, 300, 512, 1024, 1025, 4096}) {
          const GemmBlocking b =
              gemm_blocking(tile_columns, words, {.l2_bytes = l2, .l3_bytes = l3});
          const std::int64_t passes = std::max<std::int64_t>(1, ceil_divide(words, b.depth));
          const std::int64_t depth = ceil_divide(words, passes);
          EXPECT_EQ(b.columns % tile_columns, 0);
          EXPECT_GE(b.columns, tile_columns);
          EXPECT_LE(b.columns * depth * 4, l2 / 2);
          EXPECT_GE(b.columns * std::max<std::int64_t>(depth, 256) * 4 * 2, l2 / 4);
          EXPECT_LE(b.rows * b.depth * 4, std::max<std::int64_t>(l3 / 8, 512 << 10));
          EXPECT_EQ(b.chunk % b.columns, 0);
          EXPECT_LE((b.chunk - b.columns) * b.rows * 4, l3 / 8);
        }
}

TEST(GemmDeathTest, RefusesCallsThatContradictThemselves) {
  float x[4] = {};
  GemmShape s = make_shape(2, 2, 2, Form::kPlain, Form::kPlain);
  s.c_stride = 1;
  EXPECT_DEATH(gemm<float>(s, 1, x, x, 0, x), "c_stride");
  s = make_shape(2, 2, 2, Form::kTransposed, Form::kPlain);
  s.a_stride = 1;
  EXPECT_DEATH(gemm<float>(s, 1, x, x, 0, x), "a_stride");
  GemmCall<float> call{
      .shape = make_shape(2, 2, 2, Form::kPlain, Form::kPlain), .a = x, .b = x, .c = x};
  call.epilogue.activation = Activation::kGeluGradient;
  EXPECT_DEATH(gemm(call), "input");
  const PackedB<float> packed(make_shape(2, 1, 2, Form::kPlain, Form::kPlain), x);
  call.epilogue = {};
  call.packed = &packed;
  EXPECT_DEATH(gemm(call), "packed");
}

}  // namespace
}  // namespace sinew::kernels
