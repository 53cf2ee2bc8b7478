// Laws of what surrounds the product: the epilogue equals its definition in f64 within a derived
// bound; a packed B gives the bits of the unpacked one; a batch gives the bits of single calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/gelu.h"
#include "kernels/gemm.h"
#include "tests/kernels/gemm_problem.h"

namespace sinew::kernels {
namespace {

constexpr std::uint64_t kSeed = 20240704;

struct EpilogueCase {
  bool bias;
  Activation activation;
  bool pre;
  bool gated;
  bool factor;
  bool residual;
};
constexpr EpilogueCase kCases[] = {
    {true, Activation::kNone, false, false, false, false},
    {false, Activation::kNone, false, false, false, true},
    {true, Activation::kGelu, true, false, false, false},
    {false, Activation::kGeluGradient, false, false, false, false},
    {true, Activation::kSilu, true, false, true, false},
    {false, Activation::kSiluGradient, false, true, true, false},
    {true, Activation::kGelu, true, false, true, true},
};

// k of one pass, of several, and odd; columns of one block and of several chunks' panels.
const GemmShape kShapes[] = {
    make_shape(5, 7, 3, Form::kPlain, Form::kPlain, 1),
    make_shape(33, 141, 70, Form::kPlain, Form::kTransposed),
    make_shape(30, 300, 2101, Form::kTransposed, Form::kPlain, 2),
    make_shape(16, 40, 2100, Form::kPlain, Form::kPlain),
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu_argument(double x) { return 2 * 0.7978845608028654 * (x + 0.044715 * x * x * x); }

// f and its derivative in f64.
double value_of(Activation f, double x) {
  switch (f) {
    case Activation::kNone:
      return x;
    case Activation::kGelu:
    case Activation::kGeluGradient:
      return x * sigmoid(gelu_argument(x));
    case Activation::kSilu:
    case Activation::kSiluGradient:
      return x * sigmoid(x);
  }
  return 0;
}
double slope_of(Activation f, double x) {
  if (f == Activation::kSiluGradient) return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  const double s = sigmoid(gelu_argument(x));
  return s + x * s * (1 - s) * 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

template <typename Out>
struct Sides {
  Sides(const GemmShape& s, std::mt19937_64& random) : stride(s.n + 2) {
    std::normal_distribution<float> normal;
    for (std::vector<Out>* x : {&bias, &pre, &input, &gated, &factor, &residual}) {
      x->resize(static_cast<std::size_t>(s.m * stride));
      for (Out& value : *x) value = narrow<Out>(3 * normal(random));
    }
  }
  [[nodiscard]] Epilogue<Out> epilogue(const EpilogueCase& c) {
    Epilogue<Out> e;
    e.activation = c.activation;
    if (c.bias) e.bias = bias.data();
    if (c.pre) e.pre = {pre.data(), stride};
    if (c.activation == Activation::kGeluGradient || c.activation == Activation::kSiluGradient)
      e.input = {input.data(), stride};
    if (c.gated) e.gated = {gated.data(), stride};
    if (c.factor) e.factor = {factor.data(), stride};
    if (c.residual) e.residual = {residual.data(), stride};
    return e;
  }
  std::int64_t stride;
  std::vector<Out> bias, pre, input, gated, factor, residual;
};

// Operands and the exact z before the bias, with the sum of magnitudes that bounds its error.
template <typename In, typename Out>
struct Problem {
  explicit Problem(const GemmShape& s)
      : random(kSeed), start(s, random, Values::kReal), z(widened(start.c)), size(magnitudes(z)) {
    const auto a = widened(start.a);
    const auto b = widened(start.b);
    const auto multiply = [&](const auto& left, const auto& right, std::vector<double>& c) {
      gemm_plain<double>().run({.shape = s,
                                .alpha = 0.5,
                                .a = left.data(),
                                .b = right.data(),
                                .beta = 1.5,
                                .c = c.data()},
                               {});
    };
    multiply(a, b, z);
    multiply(magnitudes(a), magnitudes(b), size);
  }
  std::mt19937_64 random;
  Operands<In, Out> start;
  std::vector<double> z;
  std::vector<double> size;
};

template <typename In, typename Out>
void expect_epilogue(const KernelVersion<GemmFunctions<In>>& version, const GemmShape& s,
                     const Problem<In, Out>& problem, const EpilogueCase& c, double unit,
                     double rounding) {
  Operands<In, Out> x = problem.start;
  const std::vector<double>& z = problem.z;
  const std::vector<double>& size = problem.size;
  std::mt19937_64 random(kSeed + 1);
  Sides<Out> sides(s, random);
  const Sides<Out> before = sides;
  auto call = x.call(s, 0.5F, 1.5F);
  call.epilogue = sides.epilogue(c);
  run(*version.functions, call);
  x.expect_untouched_outside(s);
  const auto check = [&](double found, double exact, double bound, const char* what, std::int64_t i,
                         std::int64_t j) {
    ASSERT_NEAR(found, exact, bound * (1 + rounding) + rounding * std::fabs(exact))
        << version.version << " " << what << " " << describe(s) << " at " << i << ", " << j
        << " activation " << static_cast<int>(c.activation);
  };
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      const auto at = static_cast<std::size_t>(i * s.c_stride + j);
      const auto side = static_cast<std::size_t>(i * sides.stride + j);
      const auto of = [&](const std::vector<Out>& v, std::size_t index) {
        return static_cast<double>(widen(v[index]));
      };
      const double bias = c.bias ? of(before.bias, static_cast<std::size_t>(j)) : 0;
      const double exact_z = z[at] + bias;
      const double z_error = static_cast<double>(s.k + 4) * unit * (size[at] + std::fabs(bias));
      if (c.pre) check(of(sides.pre, side), exact_z, z_error, "pre", i, j);
      // Slopes of both activations are below 1.2. The sigmoid's argument v errs by some 4 u |v| and
      // its own arithmetic by 8 u, and z sigmoid'(v) v is below 2 |z|: 24 u |z| in all. A slope
      // multiplies by another |v'| <= 4.
      const bool is_gradient =
          c.activation == Activation::kGeluGradient || c.activation == Activation::kSiluGradient;
      const double input = of(before.input, side);
      double exact =
          is_gradient ? exact_z * slope_of(c.activation, input) : value_of(c.activation, exact_z);
      double error = 1.2 * z_error + 24 * unit * std::fabs(exact_z);
      if (is_gradient) error = 1.2 * z_error + 100 * unit * std::fabs(exact_z);
      if (c.gated) {
        const double silu = value_of(c.activation, input);
        check(of(sides.gated, side), exact_z * silu,
              std::fabs(silu) * z_error + 24 * unit * std::fabs(exact_z * input), "gated", i, j);
      }
      if (c.factor) {
        const double factor = of(before.factor, side);
        exact *= factor;
        error = error * std::fabs(factor) + unit * std::fabs(exact);
      }
      if (c.residual) {
        exact += of(before.residual, side);
        error += unit * std::fabs(exact);
      }
      check(widen(x.c[static_cast<std::int64_t>(at)]), exact, error, "c", i, j);
    }
}

TEST(GemmEpilogue, EqualsItsDefinitionInF64) {
  for_each_vector_type([]<typename In, typename Out>() {
    for (const GemmShape& s : kShapes) {
      const Problem<In, Out> problem(s);
      for (const auto& version : versions_of<GemmFunctions<In>>())
        for (const EpilogueCase& c : kCases)
          expect_epilogue<In, Out>(version, s, problem, c, 0x1p-24,
                                   std::is_same_v<Out, bf16> ? 0x1p-8 : 0.0);
    }
  });
}

TEST(GemmEpilogue, GradientsStayFiniteAtTheEndsOfTheRange) {
  for (const auto& version : versions_of<GemmFunctions<float>>())
    for (const Activation activation : {Activation::kGeluGradient, Activation::kSiluGradient}) {
      const std::vector<float> input = {-3e38F, -1e20F, -20.0F, 20.0F, 1e20F, 3e38F};
      std::vector<float> c(6);
      const float one = 1;
      const std::vector<float> b(6, 1.0F);
      GemmCall<float> call{.shape = make_shape(1, 6, 1, Form::kPlain, Form::kPlain),
                           .a = &one,
                           .b = b.data(),
                           .c = c.data()};
      call.epilogue.activation = activation;
      call.epilogue.input = {input.data(), 6};
      version.functions->run(call, {});
      for (int i = 0; i < 6; ++i)
        EXPECT_NEAR(c[static_cast<std::size_t>(i)], i < 3 ? 0 : 1, 1e-6) << version.version << i;
    }
}

TEST(PackedB, GivesTheBitsOfTheUnpackedProduct) {
  for_each_vector_type([]<typename In, typename Out>() {
    std::mt19937_64 random(kSeed);
    for (const auto& version : versions_of<GemmFunctions<In>>())
      for (const GemmShape& s : {make_shape(33, 141, 70, Form::kPlain, Form::kTransposed, 1),
                                 make_shape(20, 97, 2101, Form::kTransposed, Form::kPlain, 2)}) {
        Operands<In, Out> x(s, random, Values::kReal);
        Operands<In, Out> y = x;
        run(*version.functions, x.call(s, 1, 0.5F));
        const GemmFunctions<In>& f = *version.functions;
        Guarded<std::byte> packed(f.packed_bytes(s.n, s.k));
        const std::int64_t cut = 64;
        f.pack(s, y.b.data(), 0, cut, packed.data());
        f.pack(s, y.b.data(), cut, s.n - cut, packed.data());
        EXPECT_TRUE(packed.is_intact());
        auto call = y.call(s, 1, 0.5F);
        call.b = nullptr;
        call.shape.n = cut;
        run(f, call, {packed.data(), s.n, 0});
        call.shape.n = s.n - cut;
        call.c += cut;
        run(f, call, {packed.data(), s.n, cut});
        y.expect_untouched_outside(s);
        EXPECT_EQ(0, std::memcmp(x.c.data(), y.c.data(),
                                 static_cast<std::size_t>(x.c.count()) * sizeof(Out)))
            << version.version << " " << describe(s);
      }
  });
}

template <typename T>
void expect_packed_and_batched() {
  std::mt19937_64 random(kSeed);
  const GemmShape s = make_shape(50, 300, 130, Form::kPlain, Form::kTransposed);
  std::uniform_real_distribution<float> real(-1, 1);
  const auto values = [&](std::int64_t count) {
    std::vector<T> x(static_cast<std::size_t>(count));
    for (T& value : x) value = narrow<T>(real(random));
    return x;
  };
  const auto a = values(3 * s.m * s.k);
  const auto b = values(s.n * s.k);
  std::vector<T> one(static_cast<std::size_t>(3 * s.m * s.n));
  std::vector<T> other = one;
  for (int i = 0; i < 3; ++i)
    gemm(GemmCall<T>{
        .shape = s, .a = a.data() + i * s.m * s.k, .b = b.data(), .c = one.data() + i * s.m * s.n});
  ThreadPool pool(2);
  for (const Threads threads : {Threads{}, Threads{.count = 2, .pool = &pool}}) {
    const PackedB<T> packed(s, b.data(), threads);
    EXPECT_GE(packed.size_bytes(), s.n * s.k * static_cast<std::int64_t>(sizeof(T)));
    for (int i = 0; i < 3; ++i)
      gemm(GemmCall<T>{.shape = s,
                       .a = a.data() + i * s.m * s.k,
                       .packed = &packed,
                       .c = other.data() + i * s.m * s.n},
           threads);
    EXPECT_EQ(0, std::memcmp(one.data(), other.data(), one.size() * sizeof(T)));
    std::fill(other.begin(), other.end(), T{7});
    gemm_batch<T>(s, 3, {.a = s.m * s.k, .b = 0, .c = s.m * s.n}, 1, a.data(), b.data(), 0,
                  other.data(), threads);
    EXPECT_EQ(0, std::memcmp(one.data(), other.data(), one.size() * sizeof(T)));
  }
}

TEST(PackedB, AndBatchesGiveTheBitsOfSingleCallsForEveryThreadCount) {
  expect_packed_and_batched<float>();
  expect_packed_and_batched<double>();
  expect_packed_and_batched<bf16>();
}

}  // namespace
}  // namespace sinew::kernels
