// Every GEMM version on the device against the CPU's in f64: forms, ragged shapes, strides,
// alignment, splits, epilogues.
#include "kernels/gemm.h"

#include "kernels/gelu.h"
#include "kernels/gemm_gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using kernels::Activation;
using kernels::Form;
using kernels::GemmCall;
using kernels::GemmShape;
using kernels::GemmVersion;

// Shape and how much longer than needed the rows are.
GemmShape make_shape(std::int64_t m, std::int64_t n, std::int64_t k, Form a, Form b,
                     std::int64_t pad) {
  GemmShape shape = {m, n, k, a, b};
  shape.a_stride = (a == Form::kPlain ? k : m) + pad;
  shape.b_stride = (b == Form::kPlain ? n : k) + pad;
  shape.c_stride = n;
  return shape;
}

std::size_t rows_of(std::int64_t plain, std::int64_t transposed, Form form) {
  return static_cast<std::size_t>(form == Form::kPlain ? plain : transposed);
}

struct Inputs {
  std::vector<bf16> a, b, c;
};

Inputs make_inputs(const GemmShape& s) {
  const auto values = [](std::size_t count, std::uint32_t seed) {
    return from_floats<bf16>(normal_values(count, seed));
  };
  return {values(rows_of(s.m, s.k, s.a_form) * static_cast<std::size_t>(s.a_stride), 1),
          values(rows_of(s.k, s.n, s.b_form) * static_cast<std::size_t>(s.b_stride), 2),
          values(static_cast<std::size_t>(s.m * s.n), 3)};
}

std::vector<double> reference(const GemmShape& shape, const Inputs& inputs, double alpha,
                              double beta) {
  std::vector<double> c = as_doubles(inputs.c);
  kernels::gemm<double>(shape, alpha, as_doubles(inputs.a).data(), as_doubles(inputs.b).data(),
                        beta, c.data());
  return c;
}

// Runs `version` if it supports the call; checks C against `expected`.
template <typename C>
void expect_version(const GemmVersion& version, GemmCall call, const Inputs& inputs,
                    const std::vector<double>& expected, device::Stream& stream) {
  const DeviceArray<bf16> a(inputs.a, stream), b(inputs.b, stream);
  const DeviceArray<C> c(from_floats<C>(as_floats(inputs.c)), stream);
  const DeviceArray<float> workspace(static_cast<std::size_t>(kernels::gemm_workspace(call.shape)));
  call.a = a.data();
  call.b = b.data();
  call.c = c.data();
  call.c_dtype = std::is_same_v<C, float> ? DType::kF32 : DType::kBf16;
  call.workspace = workspace.data();
  if (!version.supports(call, device::properties())) return;
  version.run(call, stream);
  // Sums of k products err by k roundings of f32; stored as bf16 that does not show.
  EXPECT_LT(relative_error(c.download(stream), expected), kRoundingError<C>) << version.name;
}

constexpr Form kForms[] = {Form::kPlain, Form::kTransposed};

TEST(GpuGemm, EveryVersionAndFormEqualsTheCpuOnRaggedShapes) {
  struct Size {
    std::int64_t m, n, k, pad;
  };
  // Less than a tile, several tiles with odd edges, rows that are not whole chunks of 16 bytes.
  for (const Size size : {Size{1, 1, 1, 0}, {48, 40, 24, 8}, {136, 200, 72, 0}, {70, 33, 50, 1}}) {
    for (const Form a_form : kForms) {
      for (const Form b_form : kForms) {
        const GemmShape shape = make_shape(size.m, size.n, size.k, a_form, b_form, size.pad);
        SCOPED_TRACE(std::to_string(size.m) + "x" + std::to_string(size.n) + "x" +
                     std::to_string(size.k));
        const Inputs inputs = make_inputs(shape);
        const std::vector<double> expected = reference(shape, inputs, 1.5, 0.5);
        for_each_schedule(
            [&](device::Stream& stream) {
              GemmCall call;
              call.shape = shape;
              call.alpha = 1.5F;
              call.beta = 0.5F;
              for (const GemmVersion& version : kernels::gemm_versions()) {
                expect_version<float>(version, call, inputs, expected, stream);
              }
            },
            0);
      }
    }
  }
}

TEST(GpuGemm, LongSumsAreCutAndAddedInOrder) {
  const GemmShape shape = make_shape(24, 40, 1600, Form::kTransposed, Form::kPlain, 0);
  ASSERT_GT(kernels::gemm_workspace(shape), 0);
  const Inputs inputs = make_inputs(shape);
  const std::vector<double> expected = reference(shape, inputs, 1, 1);
  device::Stream stream;
  GemmCall call;
  call.shape = shape;
  call.beta = 1;
  for (const GemmVersion& version : kernels::gemm_versions()) {
    expect_version<float>(version, call, inputs, expected, stream);
    expect_version<bf16>(version, call, inputs, expected, stream);
  }
}

TEST(GpuGemm, SchedulesDoNotMatter) {
  const GemmShape shape = make_shape(64, 64, 200, Form::kPlain, Form::kPlain, 0);
  const Inputs inputs = make_inputs(shape);
  const std::vector<double> expected = reference(shape, inputs, 1, 0);
  for_each_schedule([&](device::Stream& stream) {
    GemmCall call;
    call.shape = shape;
    for (const GemmVersion& version : kernels::gemm_versions()) {
      expect_version<bf16>(version, call, inputs, expected, stream);
    }
  });
}

// Each part of the epilogue alone, on both an inner and an edge tile.
class GpuGemmEpilogue : public ::testing::Test {
 protected:
  static constexpr std::int64_t kM = 72;
  static constexpr std::int64_t kN = 70;
  GemmShape shape_ = make_shape(kM, kN, 32, Form::kPlain, Form::kTransposed, 0);
  Inputs inputs_ = make_inputs(shape_);
  std::vector<double> sums_ = reference(shape_, inputs_, 1, 0);
  std::vector<bf16> extra_ = from_floats<bf16>(normal_values(kM * kN, 9));
  device::Stream stream_;
  DeviceArray<bf16> d_extra_{extra_, stream_};

  // change(call): sets the epilogue.
  template <typename Change>
  void expect(const std::vector<double>& expected, std::int64_t c_stride, Change&& change) {
    for (const GemmVersion& version : kernels::gemm_versions()) {
      GemmCall call;
      call.shape = shape_;
      call.shape.c_stride = c_stride;
      change(call.epilogue);
      Inputs inputs = inputs_;
      inputs.c.resize(expected.size());
      expect_version<bf16>(version, call, inputs, expected, stream_);
    }
  }
};

TEST_F(GpuGemmEpilogue, BiasIsAddedToEveryRow) {
  std::vector<double> expected = sums_;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += static_cast<double>(to_float(extra_[i % kN]));
  }
  expect(expected, kN, [&](kernels::GemmEpilogue& e) { e.bias = d_extra_.data(); });
}

TEST_F(GpuGemmEpilogue, ResidualIsAddedAfterTheActivation) {
  std::vector<double> expected = sums_;
  kernels::gelu_forward<double>(expected.data(), expected.data(), kM * kN);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] += static_cast<double>(to_float(extra_[i]));
  }
  expect(expected, kN, [&](kernels::GemmEpilogue& e) {
    e.activation = Activation::kGelu;
    e.residual = d_extra_.data();
  });
}

TEST_F(GpuGemmEpilogue, WhatTheActivationSawIsKept) {
  std::vector<double> expected = sums_;
  kernels::gelu_forward<double>(expected.data(), expected.data(), kM * kN);
  const DeviceArray<bf16> before(kM * kN);
  expect(expected, kN, [&](kernels::GemmEpilogue& e) {
    e.activation = Activation::kGelu;
    e.before = before.data();
  });
  EXPECT_LT(relative_error(before.download(stream_), sums_), kRoundingError<bf16>);
}

TEST_F(GpuGemmEpilogue, BackwardOfGeluMultipliesByTheSlope) {
  std::vector<double> expected(sums_.size());
  kernels::gelu_backward<double>(sums_.data(), as_doubles(extra_).data(), expected.data(), kM * kN);
  expect(expected, kN, [&](kernels::GemmEpilogue& e) { e.slope_at = d_extra_.data(); });
}

TEST_F(GpuGemmEpilogue, SwigluTakesPairsOfColumns) {
  std::vector<double> expected;
  for (std::size_t i = 0; i < sums_.size(); i += 2) {
    expected.push_back(sums_[i] / (1 + std::exp(-sums_[i])) * sums_[i + 1]);
  }
  expect(expected, kN / 2,
         [&](kernels::GemmEpilogue& e) { e.activation = Activation::kSwigluPairs; });
}

TEST(GpuGemm, EmptyShapesDoNothingOrOnlyScale) {
  device::Stream stream;
  const DeviceArray<float> c(std::vector<float>{1, 2}, stream);
  const DeviceArray<bf16> none(1);
  GemmCall call;
  call.shape = make_shape(1, 2, 0, Form::kPlain, Form::kPlain, 0);
  call.a = call.b = none.data();
  call.beta = 2;
  call.c = c.data();
  call.c_dtype = DType::kF32;
  for (const GemmVersion& version : kernels::gemm_versions()) version.run(call, stream);
  EXPECT_EQ(c.download(stream)[1], 2 * std::exp2(kernels::gemm_versions().size()));
  call.shape.m = 0;
  kernels::gemm(call, stream);
  EXPECT_EQ(c.download(stream)[1], 2 * std::exp2(kernels::gemm_versions().size()));
}

}  // namespace

bool testing::gemm_mma_scenario(device::Stream& stream) {
  // Five and a half steps: every stage is filled again.
  const GemmShape shape = make_shape(16, 16, 176, Form::kPlain, Form::kPlain, 0);
  const Inputs inputs = make_inputs(shape);
  const DeviceArray<bf16> a(inputs.a, stream), b(inputs.b, stream);
  const DeviceArray<float> c(16 * 16);
  GemmCall call;
  call.shape = shape;
  call.a = a.data();
  call.b = b.data();
  call.c = c.data();
  call.c_dtype = DType::kF32;
  kernels::gemm_mma_small().run(call, stream);
  return relative_error(c.download(stream), reference(shape, inputs, 1, 0)) < 2e-6;
}

}  // namespace sinew
