// Backward against central differences, for the kernels whose other laws state it by its formula: a
// product with its epilogues (both gradients of a product, GELU, SwiGLU, bias, residual), bias,
// embedding, the rotary embedding. In f64: the vector versions are held to it by their own tests.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/registry.h"
#include "kernels/rope.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/gemm_problem.h"

namespace sinew::kernels {
namespace {

using Values64 = std::vector<double>;

Values64 random_values(std::int64_t count, std::mt19937_64& random) {
  return exact(normal_values<double>(count, random));
}

double dot(const Values64& x, const Values64& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

template <typename Loss>
void expect_derivative(const Values64& found, Values64& of, const Loss& loss, const char* what) {
  ASSERT_EQ(found.size(), of.size());
  for (std::size_t i = 0; i < of.size(); ++i)
    EXPECT_NEAR(found[i], difference(&of[i], loss), 1e-7) << what << " " << i;
}

// rows x inner, a weight [outer, inner] as a layer stores it.
constexpr std::int64_t kRows = 5;
constexpr std::int64_t kInner = 4;
constexpr std::int64_t kOuter = 7;

using Version = GemmFunctions<double>;

// y = x weight^T and then the epilogue.
void multiply(const Version& f, std::int64_t inner, std::int64_t outer, const Values64& x,
              const Values64& weight, const Epilogue<double>& epilogue, Values64& y) {
  f.run({.shape = make_shape(kRows, outer, inner, Form::kPlain, Form::kTransposed),
         .a = x.data(),
         .b = weight.data(),
         .c = y.data(),
         .epilogue = epilogue},
        {});
}

// d_x = d_y weight, and then the epilogue.
void input_gradient(const Version& f, std::int64_t inner, std::int64_t outer, const Values64& d_y,
                    const Values64& weight, const Epilogue<double>& epilogue, double beta,
                    Values64& d_x) {
  f.run({.shape = make_shape(kRows, inner, outer, Form::kPlain, Form::kPlain),
         .a = d_y.data(),
         .b = weight.data(),
         .beta = beta,
         .c = d_x.data(),
         .epilogue = epilogue},
        {});
}

// d_weight += d_y^T x.
void weight_gradient(const Version& f, std::int64_t inner, std::int64_t outer, const Values64& d_y,
                     const Values64& x, Values64& d_weight) {
  f.run({.shape = make_shape(outer, inner, kRows, Form::kTransposed, Form::kPlain),
         .a = d_y.data(),
         .b = x.data(),
         .beta = 1,
         .c = d_weight.data()},
        {});
}

// z = x + gelu(x first^T + bias) second^T, all of it in epilogues, and back.
TEST(GemmDerivative, OfALayerWithGeluBiasAndResidual) {
  for (const auto& version : versions_of<Version>()) {
    SCOPED_TRACE(version.version);
    const Version& f = *version.functions;
    std::mt19937_64 random(1);
    Values64 x = random_values(kRows * kInner, random);
    Values64 first = random_values(kOuter * kInner, random);
    Values64 bias = random_values(kOuter, random);
    Values64 second = random_values(kInner * kOuter, random);
    const Values64 d_z = random_values(kRows * kInner, random);
    Values64 pre(kRows * kOuter);
    Values64 hidden(kRows * kOuter);
    Values64 z(kRows * kInner);
    const auto loss = [&] {
      multiply(f, kInner, kOuter, x, first,
               {.bias = bias.data(), .activation = Activation::kGelu, .pre = {pre.data(), kOuter}},
               hidden);
      multiply(f, kOuter, kInner, hidden, second, {.residual = {x.data(), kInner}}, z);
      return dot(z, d_z);
    };
    loss();
    Values64 d_second(second.size());
    weight_gradient(f, kOuter, kInner, d_z, hidden, d_second);
    Values64 d_pre(pre.size());
    input_gradient(f, kOuter, kInner, d_z, second,
                   {.activation = Activation::kGeluGradient, .input = {pre.data(), kOuter}}, 0,
                   d_pre);
    Values64 d_first(first.size());
    weight_gradient(f, kInner, kOuter, d_pre, x, d_first);
    Values64 d_bias(bias.size());
    bias_backward<double>(d_pre.data(), d_bias.data(), kRows, kOuter);
    Values64 d_x = d_z;  // through the residual connection; beta adds the other way
    input_gradient(f, kInner, kOuter, d_pre, first, {}, 1, d_x);
    expect_derivative(d_second, second, loss, "second weight");
    expect_derivative(d_first, first, loss, "first weight");
    expect_derivative(d_bias, bias, loss, "bias");
    expect_derivative(d_x, x, loss, "x");
  }
}

// z = (silu(x gate^T) * (x up^T)) down^T.
TEST(GemmDerivative, OfALayerWithSwiglu) {
  for (const auto& version : versions_of<Version>()) {
    SCOPED_TRACE(version.version);
    const Version& f = *version.functions;
    std::mt19937_64 random(2);
    Values64 x = random_values(kRows * kInner, random);
    Values64 gate = random_values(kOuter * kInner, random);
    Values64 up = random_values(kOuter * kInner, random);
    Values64 down = random_values(kInner * kOuter, random);
    const Values64 d_z = random_values(kRows * kInner, random);
    Values64 gate_value(kRows * kOuter);
    Values64 up_value(kRows * kOuter);
    Values64 hidden(kRows * kOuter);
    Values64 z(kRows * kInner);
    const auto loss = [&] {
      multiply(f, kInner, kOuter, x, up, {}, up_value);
      multiply(f, kInner, kOuter, x, gate,
               {.activation = Activation::kSilu,
                .pre = {gate_value.data(), kOuter},
                .factor = {up_value.data(), kOuter}},
               hidden);
      multiply(f, kOuter, kInner, hidden, down, {}, z);
      return dot(z, d_z);
    };
    loss();
    Values64 d_down(down.size());
    weight_gradient(f, kOuter, kInner, d_z, hidden, d_down);
    Values64 d_gate_value(gate_value.size());
    Values64 d_up_value(up_value.size());
    input_gradient(f, kOuter, kInner, d_z, down,
                   {.activation = Activation::kSiluGradient,
                    .input = {gate_value.data(), kOuter},
                    .gated = {d_up_value.data(), kOuter},
                    .factor = {up_value.data(), kOuter}},
                   0, d_gate_value);
    Values64 d_gate(gate.size());
    weight_gradient(f, kInner, kOuter, d_gate_value, x, d_gate);
    Values64 d_up(up.size());
    weight_gradient(f, kInner, kOuter, d_up_value, x, d_up);
    Values64 d_x(x.size());
    input_gradient(f, kInner, kOuter, d_gate_value, gate, {}, 0, d_x);
    input_gradient(f, kInner, kOuter, d_up_value, up, {}, 1, d_x);
    expect_derivative(d_down, down, loss, "down");
    expect_derivative(d_gate, gate, loss, "gate");
    expect_derivative(d_up, up, loss, "up");
    expect_derivative(d_x, x, loss, "x");
  }
}

TEST(Bias, BackwardIsTheDerivative) {
  std::mt19937_64 random(3);
  const Values64 x = random_values(15, random);
  const Values64 d_y = random_values(15, random);
  Values64 bias = random_values(5, random);
  const auto loss = [&] {
    Values64 y = x;
    add_bias<double>(y.data(), bias.data(), 3, 5);
    return dot(y, d_y);
  };
  Values64 d_bias(5);
  bias_backward<double>(d_y.data(), d_bias.data(), 3, 5);
  expect_derivative(d_bias, bias, loss, "bias");
}

// One token twice, one of another rank's rows.
TEST(Embedding, BackwardIsTheDerivative) {
  std::mt19937_64 random(4);
  const EmbeddingShape shape{2, 3, 4, 2, 5};
  const std::vector<std::int32_t> tokens = {2, 6, 2, 3, 0, 6};
  Values64 table = random_values(shape.rows * shape.channels, random);
  Values64 positions = random_values(shape.time * shape.channels, random);
  const Values64 d_y = random_values(6 * shape.channels, random);
  const auto loss = [&] {
    Values64 y(d_y.size());
    embedding_forward<double>(shape, tokens.data(), table.data(), positions.data(), y.data());
    return dot(y, d_y);
  };
  Values64 d_table(table.size());
  Values64 d_positions(positions.size());
  embedding_backward<double>(shape, tokens.data(), d_y.data(), d_table.data(), d_positions.data());
  expect_derivative(d_table, table, loss, "table");
  expect_derivative(d_positions, positions, loss, "positions");
}

TEST(Rope, BackwardIsTheDerivative) {
  std::mt19937_64 random(5);
  const RopeShape shape{2, 3, 2, 6};
  const std::int64_t row = shape.heads * shape.head_dim;
  Values64 x = random_values(shape.batch * shape.time * row, random);
  const Values64 d_y = random_values(shape.batch * shape.time * row, random);
  Values64 cosine(9);
  Values64 sine(9);
  rope_table<double>(std::vector<std::int32_t>{0, 3, 1000}, shape.head_dim, 10000.0, cosine.data(),
                     sine.data());
  const auto loss = [&] {
    Values64 y = x;
    rope_forward<double>(shape, {y.data(), shape.time * row, row}, cosine.data(), sine.data());
    return dot(y, d_y);
  };
  Values64 d_x = d_y;
  rope_backward<double>(shape, {d_x.data(), shape.time * row, row}, cosine.data(), sine.data());
  expect_derivative(d_x, x, loss, "x");
}

}  // namespace
}  // namespace sinew::kernels
