// Laws of GEMM, for every version this processor runs: exact on whole numbers, within its error
// bound of f64 over generated shapes, forms, strides and factors; writes nothing but C; the same
// bits for an element wherever it lies and whatever the thread count.
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm_blocked.h"
#include "kernels/registry.h"
#include "tests/kernels/guarded.h"

namespace sinew::kernels {
namespace {

constexpr std::uint64_t kSeed = 20240702;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string describe(const GemmShape& s) {
  return "m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k) +
         (s.a_form == Form::kPlain ? " N" : " T") + (s.b_form == Form::kPlain ? "N" : "T") +
         " strides " + std::to_string(s.a_stride) + " " + std::to_string(s.b_stride) + " " +
         std::to_string(s.c_stride);
}

std::int64_t a_rows(const GemmShape& s) { return s.a_form == Form::kPlain ? s.m : s.k; }
std::int64_t b_rows(const GemmShape& s) { return s.b_form == Form::kPlain ? s.k : s.n; }

GemmShape make_shape(std::int64_t m, std::int64_t n, std::int64_t k, Form a_form, Form b_form,
                     std::int64_t gap = 0) {
  return {.m = m,
          .n = n,
          .k = k,
          .a_form = a_form,
          .b_form = b_form,
          .a_stride = (a_form == Form::kPlain ? k : m) + gap,
          .b_stride = (b_form == Form::kPlain ? n : k) + 2 * gap,
          .c_stride = n + 3 * gap};
}

float a_at(const GemmShape& s, const float* a, std::int64_t i, std::int64_t k) {
  return s.a_form == Form::kPlain ? a[i * s.a_stride + k] : a[k * s.a_stride + i];
}
float b_at(const GemmShape& s, const float* b, std::int64_t k, std::int64_t j) {
  return s.b_form == Form::kPlain ? b[k * s.b_stride + j] : b[j * s.b_stride + k];
}

// Operands at a misalignment of one element. Gaps between rows hold NaN in A and B, which must not
// be read into a result, and a mark in C, which must not be written.
struct Operands {
  static constexpr float kMark = 12345.0F;

  Operands(const GemmShape& s, std::mt19937_64& random, bool whole)
      : a(a_rows(s) * s.a_stride, 1), b(b_rows(s) * s.b_stride, 1), c(s.m * s.c_stride, 1) {
    std::uniform_real_distribution<float> real(-1.0F, 1.0F);
    std::uniform_int_distribution<int> integer(-4, 4);
    const auto value = [&] { return whole ? static_cast<float>(integer(random)) : real(random); };
    const auto fill = [&](Guarded<float>& x, std::int64_t width, std::int64_t stride, float gap) {
      for (std::int64_t i = 0; i < x.count(); ++i) x[i] = i % stride < width ? value() : gap;
    };
    fill(a, s.a_form == Form::kPlain ? s.k : s.m, s.a_stride, kNan);
    fill(b, s.b_form == Form::kPlain ? s.n : s.k, s.b_stride, kNan);
    fill(c, s.n, s.c_stride, kMark);
  }
  void expect_untouched_outside(const GemmShape& s) const {
    EXPECT_TRUE(c.is_intact());
    for (std::int64_t i = 0; i < c.count(); ++i) {
      if (i % s.c_stride >= s.n) {
        ASSERT_EQ(c[i], kMark) << "gap at " << i;
      }
    }
  }

  Guarded<float> a;
  Guarded<float> b;
  Guarded<float> c;
};

std::vector<KernelVersion<GemmFunctions<float>>> f32_versions() {
  return versions_of<GemmFunctions<float>>();
}

std::vector<GemmShape> generated_shapes() {
  std::vector<GemmShape> shapes;
  std::mt19937_64 random(kSeed);
  const std::int64_t sizes[] = {0,  1,  2,  3,  5,  7,  8,  13, 14, 15,
                                16, 17, 29, 31, 32, 33, 47, 64, 97};
  const std::int64_t depths[] = {0, 1, 2, 3, 15, 16, 17, 31, 64, 100, 511, 512, 513, 1030};
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  for (int i = 0; i < 160; ++i)
    shapes.push_back(make_shape(pick(sizes), pick(sizes), pick(depths),
                                random() % 2 == 0 ? Form::kPlain : Form::kTransposed,
                                random() % 2 == 0 ? Form::kPlain : Form::kTransposed,
                                static_cast<std::int64_t>(random() % 3)));
  // Several blocks of columns, with and without a partial last panel.
  for (const Form a_form : {Form::kPlain, Form::kTransposed})
    for (const Form b_form : {Form::kPlain, Form::kTransposed}) {
      shapes.push_back(make_shape(30, 700, 513, a_form, b_form));
      shapes.push_back(make_shape(43, 389, 40, a_form, b_form, 1));
    }
  return shapes;
}

TEST(Gemm, PrintsTheVersionsThisProcessorCannotRun) {
  for (const KernelRow& row : kernel_rows())
    if (row.operation == "gemm" && !is_available(row))
      std::printf("gemm %s is not tested here: it needs %s\n", std::string(row.version).c_str(),
                  std::string(name_of(row.isa)).c_str());
  EXPECT_GE(f32_versions().size(), 2U);
}

// Sums of products of whole numbers below 2^24 have no rounding in any order.
TEST(Gemm, IsExactOnWholeNumbers) {
  std::mt19937_64 random(kSeed);
  for (const GemmShape& s : generated_shapes()) {
    const Operands start(s, random, true);
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < s.k; ++k)
          sum += static_cast<std::int64_t>(a_at(s, start.a.data(), i, k)) *
                 static_cast<std::int64_t>(b_at(s, start.b.data(), k, j));
        expected.push_back(2 * sum - static_cast<std::int64_t>(start.c[i * s.c_stride + j]));
      }
    for (const auto& version : f32_versions()) {
      Operands x = start;
      version.functions->run(s, 2.0F, x.a.data(), x.b.data(), -1.0F, x.c.data());
      x.expect_untouched_outside(s);
      for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j)
          ASSERT_EQ(x.c[i * s.c_stride + j], static_cast<float>(expected[i * s.n + j]))
              << version.version << " " << describe(s) << " at " << i << ", " << j;
    }
  }
}

// The bound of gemm.h, (k + 2) u (|alpha| |A||B| + |beta C|), with |A||B| from f64. An f32 sum that
// were never worse than a hundredth of the bound would mean the oracle shares its arithmetic.
TEST(Gemm, StaysWithinItsErrorBoundOfF64) {
  constexpr double kUnit = 0x1p-24;
  std::mt19937_64 random(kSeed + 1);
  const float factors[][2] = {{1, 0}, {1, 1}, {-0.75F, 0.5F}, {0, 0.5F}, {1, -3}};
  for (const GemmShape& s : generated_shapes()) {
    const Operands start(s, random, false);
    const auto& factor = factors[random() % std::size(factors)];
    const auto doubled = [](const Guarded<float>& x, bool magnitude) {
      std::vector<double> y(static_cast<std::size_t>(x.count()));
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = magnitude ? std::fabs(x[static_cast<std::int64_t>(i)])
                         : static_cast<double>(x[static_cast<std::int64_t>(i)]);
      return y;
    };
    std::vector<double> exact = doubled(start.c, false);
    std::vector<double> magnitude = doubled(start.c, true);
    const auto& plain = gemm_plain<double>();
    plain.run(s, factor[0], doubled(start.a, false).data(), doubled(start.b, false).data(),
              factor[1], exact.data());
    plain.run(s, std::fabs(factor[0]), doubled(start.a, true).data(), doubled(start.b, true).data(),
              std::fabs(factor[1]), magnitude.data());
    for (const auto& version : f32_versions()) {
      Operands x = start;
      if (factor[1] == 0)
        for (std::int64_t i = 0; i < s.m; ++i) std::fill_n(x.c.data() + i * s.c_stride, s.n, kNan);
      version.functions->run(s, factor[0], x.a.data(), x.b.data(), factor[1], x.c.data());
      x.expect_untouched_outside(s);
      double worst = 0;
      for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j) {
          const auto at = static_cast<std::size_t>(i * s.c_stride + j);
          const double error = std::fabs(x.c[static_cast<std::int64_t>(at)] - exact[at]);
          const double bound = static_cast<double>(s.k + 2) * kUnit * magnitude[at];
          ASSERT_LE(error, bound * 1.0001)
              << version.version << " " << describe(s) << " at " << i << ", " << j;
          if (bound > 0) worst = std::max(worst, error / bound);
        }
      if (s.m * s.n > 500 && s.k > 0 && s.k < 100 && factor[0] != 0) {
        EXPECT_GE(worst, 0.01) << version.version << " " << describe(s);
      }
    }
  }
}

TEST(Gemm, GivesAnElementTheSameBitsWhereverItLies) {
  std::mt19937_64 random(kSeed + 2);
  for (const Form a_form : {Form::kPlain, Form::kTransposed})
    for (const Form b_form : {Form::kPlain, Form::kTransposed}) {
      const GemmShape s = make_shape(45, 140, 700, a_form, b_form);
      const Operands start(s, random, false);
      for (const auto& version : f32_versions()) {
        Operands whole = start;
        version.functions->run(s, 0.5F, whole.a.data(), whole.b.data(), 1.5F, whole.c.data());
        for (int trial = 0; trial < 6; ++trial) {
          const auto row = static_cast<std::int64_t>(random() % 45);
          const auto column = static_cast<std::int64_t>(random() % 140);
          GemmShape part = s;
          part.m = 1 + static_cast<std::int64_t>(random() % (45 - row));
          part.n = 1 + static_cast<std::int64_t>(random() % (140 - column));
          Operands x = start;
          version.functions->run(part, 0.5F,
                                 x.a.data() + row * (a_form == Form::kPlain ? s.a_stride : 1),
                                 x.b.data() + column * (b_form == Form::kPlain ? 1 : s.b_stride),
                                 1.5F, x.c.data() + row * s.c_stride + column);
          for (std::int64_t i = 0; i < part.m; ++i)
            ASSERT_EQ(0, std::memcmp(&x.c[(row + i) * s.c_stride + column],
                                     &whole.c[(row + i) * s.c_stride + column],
                                     static_cast<std::size_t>(part.n) * sizeof(float)))
                << version.version << " " << describe(part);
        }
      }
    }
}

template <typename T>
void expect_thread_count_does_not_matter() {
  std::mt19937_64 random(kSeed + 3);
  std::uniform_real_distribution<T> real(-1, 1);
  ThreadPool pool(3);
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{200, 70, 530}, {61, 400, 300}, {1, 3000, 600}}) {
    const GemmShape s = make_shape(m, n, k, Form::kPlain, Form::kTransposed);
    std::vector<T> a(static_cast<std::size_t>(m * k));
    std::vector<T> b(static_cast<std::size_t>(n * k));
    for (T& x : a) x = real(random);
    for (T& x : b) x = real(random);
    std::vector<T> one(static_cast<std::size_t>(m * n));
    gemm<T>(s, 1, a.data(), b.data(), 0, one.data());
    for (const Threads threads : {Threads{.count = 2}, Threads{.count = 3, .pool = &pool},
                                  Threads{.count = 6}, Threads{.count = 7}}) {
      std::vector<T> many(one.size(), 7);
      gemm<T>(s, 1, a.data(), b.data(), 0, many.data(), threads);
      EXPECT_EQ(0, std::memcmp(one.data(), many.data(), one.size() * sizeof(T)))
          << threads.count << " threads, " << describe(s);
    }
  }
}

TEST(Gemm, GivesTheSameBitsForEveryThreadCount) {
  expect_thread_count_does_not_matter<float>();
  expect_thread_count_does_not_matter<double>();
}

// One special value in A spoils its row, one in B its column, and nothing else: zeros that pad a
// panel must not meet an infinity.
TEST(Gemm, PropagatesNanAndInfinityToTheirRowAndColumnOnly) {
  for (const float special : {kNan, kInfinity})
    for (const Form form : {Form::kPlain, Form::kTransposed})
      for (const auto& version : f32_versions()) {
        const GemmShape s = make_shape(19, 37, 23, form, form);
        std::vector<float> a(19 * 23, 1.0F);
        std::vector<float> b(23 * 37, 1.0F);
        std::vector<float> c(19 * 37, 0.0F);
        (form == Form::kPlain ? a[18 * 23 + 22] : a[22 * 19 + 18]) = special;
        (form == Form::kPlain ? b[22 * 37 + 36] : b[36 * 23 + 22]) = special;
        version.functions->run(s, 1, a.data(), b.data(), 0, c.data());
        for (int i = 0; i < 19; ++i)
          for (int j = 0; j < 37; ++j)
            EXPECT_EQ(std::isfinite(c[static_cast<std::size_t>(i * 37 + j)]), i != 18 && j != 36)
                << version.version << " at " << i << ", " << j;
      }
}

TEST(Gemm, AcceptsNullOperandsWhenTheyAreEmpty) {
  for (const auto& version : f32_versions()) {
    std::vector<float> c(6, 3.0F);
    version.functions->run(make_shape(2, 3, 0, Form::kPlain, Form::kPlain), 1, nullptr, nullptr,
                           0.5F, c.data());
    EXPECT_EQ(c, std::vector<float>(6, 1.5F)) << version.version;
    version.functions->run(make_shape(2, 3, 0, Form::kPlain, Form::kPlain), 1, nullptr, nullptr, 0,
                           c.data());
    EXPECT_EQ(c, std::vector<float>(6, 0.0F)) << version.version;
    std::vector<float> operand(12, 1.0F);
    version.functions->run(make_shape(0, 3, 4, Form::kPlain, Form::kPlain), 1, nullptr,
                           operand.data(), 0, nullptr);
    version.functions->run(make_shape(2, 0, 4, Form::kPlain, Form::kPlain), 1, operand.data(),
                           nullptr, 0, nullptr);
  }
}

TEST(GemmBlocking, FillsTheCachesItIsGivenAndNoMore) {
  for (const std::int64_t l2 : {256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20})
    for (const std::int64_t l3 : {2 << 20, 32 << 20, 256 << 20})
      for (const GemmKernels* kernels :
           {gemm_kernels_portable(), gemm_kernels_avx2(), gemm_kernels_avx512()}) {
        if (kernels == nullptr) continue;
        const GemmBlocking b = gemm_blocking(*kernels, {.l2_bytes = l2, .l3_bytes = l3});
        EXPECT_EQ(b.columns % kernels->tile_columns, 0);
        EXPECT_GE(b.columns, kernels->tile_columns);
        EXPECT_LE(b.columns * b.depth * 4, l2 / 2);
        EXPECT_GE(b.columns * b.depth * 4 * 2, l2 / 4);
        EXPECT_LE(b.rows * b.depth * 4, std::max<std::int64_t>(l3 / 8, 512 << 10));
      }
}

TEST(GemmDeathTest, RefusesShapesThatContradictThemselves) {
  float x[4] = {};
  GemmShape s = make_shape(2, 2, 2, Form::kPlain, Form::kPlain);
  s.c_stride = 1;
  EXPECT_DEATH(gemm<float>(s, 1, x, x, 0, x), "c_stride");
  s = make_shape(2, 2, 2, Form::kTransposed, Form::kPlain);
  s.a_stride = 1;
  EXPECT_DEATH(gemm<float>(s, 1, x, x, 0, x), "a_stride");
}

}  // namespace
}  // namespace sinew::kernels
