// Every GEMM version on the device against the CPU's in f64: forms, ragged shapes, strides,
// alignment, splits, epilogues.
#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/gemm_gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using kernels::Activation;
using kernels::DeviceGemm;
using kernels::Form;
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

// gemm_gpu.h's bound on each element: (k + 2) u (|alpha| |A||B| + |beta C|) with u = 2^-23, half of
// an eighth bit more where C is bf16.
template <typename C>
std::vector<double> bounds(const GemmShape& shape, const Inputs& inputs, double alpha, double beta,
                           const std::vector<double>& exact) {
  Inputs magnitudes = inputs;
  for (auto* values : {&magnitudes.a, &magnitudes.b, &magnitudes.c}) {
    for (bf16& value : *values) value.bits &= 0x7fff;
  }
  std::vector<double> bound = reference(shape, magnitudes, std::abs(alpha), std::abs(beta));
  for (std::size_t i = 0; i < bound.size(); ++i) {
    bound[i] *= static_cast<double>(shape.k + 2) * 0x1p-23;
    if (std::is_same_v<C, bf16>) bound[i] += 0x1p-8 * (std::abs(exact[i]) + bound[i]);
  }
  return bound;
}

// C = A B, all three on the device.
DeviceGemm plain_call(const GemmShape& shape, const DeviceArray<bf16>& a,
                      const DeviceArray<bf16>& b, const DeviceArray<float>& c) {
  DeviceGemm call;
  call.shape = shape;
  call.a = a.data();
  call.b = b.data();
  call.c = c.data();
  call.c_dtype = DType::kF32;
  return call;
}

// Runs `version` if it supports the call; gives C, or nothing.
template <typename C>
std::vector<C> run_version(const GemmVersion& version, DeviceGemm call, const Inputs& inputs,
                           device::Stream& stream) {
  const DeviceArray<bf16> a(inputs.a, stream), b(inputs.b, stream);
  const DeviceArray<C> c(from_floats<C>(as_floats(inputs.c)), stream);
  const DeviceArray<float> workspace(static_cast<std::size_t>(kernels::gemm_workspace(call.shape)));
  call.a = a.data();
  call.b = b.data();
  call.c = c.data();
  call.c_dtype = std::is_same_v<C, float> ? DType::kF32 : DType::kBf16;
  call.workspace = workspace.data();
  if (!version.supports(call, device::properties())) return {};
  version.run(call, stream);
  return c.download(stream);
}

template <typename C>
void expect_versions(const DeviceGemm& call, const Inputs& inputs, const std::vector<double>& exact,
                     device::Stream& stream) {
  const std::vector<double> bound = bounds<C>(call.shape, inputs, static_cast<double>(call.alpha),
                                              static_cast<double>(call.beta), exact);
  for (const GemmVersion& version : kernels::gemm_versions()) {
    const std::vector<C> c = run_version<C>(version, call, inputs, stream);
    for (std::size_t i = 0; i < c.size(); ++i) {
      const double error = std::abs(static_cast<double>(as_float(c[i])) - exact[i]);
      ASSERT_TRUE(error <= bound[i])
          << version.name << ", element " << i << ": off by " << error << ", bound " << bound[i];
    }
  }
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
              DeviceGemm call;
              call.shape = shape;
              call.alpha = 1.5F;
              call.beta = 0.5F;
              expect_versions<float>(call, inputs, expected, stream);
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
  DeviceGemm call;
  call.shape = shape;
  call.beta = 1;
  expect_versions<float>(call, inputs, expected, stream);
  expect_versions<bf16>(call, inputs, expected, stream);
}

TEST(GpuGemm, SchedulesDoNotMatter) {
  const GemmShape shape = make_shape(64, 64, 200, Form::kPlain, Form::kPlain, 0);
  const Inputs inputs = make_inputs(shape);
  const std::vector<double> expected = reference(shape, inputs, 1, 0);
  for_each_schedule([&](device::Stream& stream) {
    DeviceGemm call;
    call.shape = shape;
    expect_versions<bf16>(call, inputs, expected, stream);
  });
}

// Activation and operands of one epilogue, as letters: b bias, p pre, f factor, r residual.
struct EpilogueCase {
  Activation activation;
  std::string_view parts;
};
constexpr EpilogueCase kEpilogues[] = {
    {Activation::kNone, "b"},         {Activation::kNone, "br"}, {Activation::kGelu, "bp"},
    {Activation::kGelu, "r"},         {Activation::kSilu, "pf"}, {Activation::kGeluGradient, ""},
    {Activation::kSiluGradient, "f"},
};

// The epilogue of `c` with buffers of element type T. Every matrix is as long as C.
template <typename T>
kernels::Epilogue<T> make_epilogue(const EpilogueCase& c, const T* operand, T* pre, T* gated,
                                   std::int64_t n) {
  kernels::Epilogue<T> epilogue;
  const auto has = [&](char part) { return c.parts.find(part) != std::string_view::npos; };
  epilogue.activation = c.activation;
  if (has('b')) epilogue.bias = operand;
  if (has('p')) epilogue.pre = {pre, n};
  if (has('f')) epilogue.factor = {operand, n};
  if (has('r')) epilogue.residual = {operand, n};
  if (c.activation == Activation::kSiluGradient) epilogue.gated = {gated, n};
  if (c.activation >= Activation::kGeluGradient) epilogue.input = {operand, n};
  return epilogue;
}

// An inner and an edge tile of both versions, odd columns at the end, sums in one and several
// parts.
TEST(GpuGemm, EpiloguesEqualTheCpu) {
  device::Stream stream;
  for (const GemmShape& shape : {make_shape(72, 71, 32, Form::kPlain, Form::kTransposed, 0),
                                 make_shape(40, 24, 1040, Form::kPlain, Form::kPlain, 0)}) {
    const Inputs inputs = make_inputs(shape);
    const auto count = static_cast<std::size_t>(shape.m * shape.n);
    const std::vector<bf16> operand = from_floats<bf16>(normal_values(count, 9));
    const DeviceArray<bf16> d_operand(operand, stream), pre(count), gated(count);
    const std::vector<double> a = as_doubles(inputs.a), b = as_doubles(inputs.b),
                              operands = as_doubles(operand);
    for (const EpilogueCase& c : kEpilogues) {
      SCOPED_TRACE(std::to_string(static_cast<int>(c.activation)) + std::string(c.parts));
      std::vector<double> expected(count), expected_pre(count), expected_gated(count);
      const double scale = 1 / std::sqrt(static_cast<double>(shape.k));
      kernels::gemm(kernels::GemmCall<double>{
          .shape = shape,
          .alpha = scale,
          .a = a.data(),
          .b = b.data(),
          .c = expected.data(),
          .epilogue = make_epilogue(c, operands.data(), expected_pre.data(), expected_gated.data(),
                                    shape.n)});
      DeviceGemm call;
      call.shape = shape;
      call.alpha = static_cast<float>(scale);
      call.epilogue = make_epilogue<bf16>(c, d_operand.data(), pre.data(), gated.data(), shape.n);
      for (const GemmVersion& version : kernels::gemm_versions()) {
        const std::vector<bf16> actual = run_version<bf16>(version, call, inputs, stream);
        if (actual.empty()) continue;  // it does not take this form
        EXPECT_LT(relative_error(actual, expected), kRoundingError<bf16>) << version.name;
        if (call.epilogue.pre.data != nullptr) {
          EXPECT_LT(relative_error(pre.download(stream), expected_pre), kRoundingError<bf16>);
        }
        if (call.epilogue.gated.data != nullptr) {
          EXPECT_LT(relative_error(gated.download(stream), expected_gated), kRoundingError<bf16>);
        }
      }
    }
  }
}

TEST(GpuGemm, EmptyShapesDoNothingOrOnlyScale) {
  device::Stream stream;
  const DeviceArray<float> c(std::vector<float>{1, 2}, stream);
  const DeviceArray<bf16> none(1);
  DeviceGemm call;
  call.shape = make_shape(1, 2, 0, Form::kPlain, Form::kPlain, 0);
  call.a = call.b = none.data();
  call.beta = 2;
  call.c = c.data();
  call.c_dtype = DType::kF32;
  for (const GemmVersion& version : kernels::gemm_versions()) {
    if (version.supports(call, device::properties())) version.run(call, stream);
  }
  // The versions of asynchronous units leave an empty sum to the others.
  const auto runs = static_cast<double>(
      std::count_if(kernels::gemm_versions().begin(), kernels::gemm_versions().end(),
                    [&](const GemmVersion& v) { return v.supports(call, device::properties()); }));
  EXPECT_EQ(c.download(stream)[1], 2 * std::exp2(runs));
  call.shape.m = 0;
  kernels::gemm(call, stream);
  EXPECT_EQ(c.download(stream)[1], 2 * std::exp2(runs));
}

TEST(GpuGemm, AVersionCanBeAskedForByName) {
  device::Stream stream;
  const GemmShape shape = make_shape(40, 24, 136, Form::kPlain, Form::kTransposed, 0);
  const Inputs inputs = make_inputs(shape);
  const std::vector<double> expected = reference(shape, inputs, 1, 0);
  const DeviceArray<bf16> a(inputs.a, stream), b(inputs.b, stream);
  for (const std::string_view name : {"mma_64x64", "wgmma_128x128", "wgmma_128x256"}) {
    // wgmma is of compute capability 9.0 alone; elsewhere it is refused.
    const bool refused = name.starts_with("wgmma") && device::properties().major != 9;
    const DeviceArray<float> c(40 * 24);
    DeviceGemm call = plain_call(shape, a, b, c);
    if (refused) {
      EXPECT_THROW(kernels::gemm_by(name, call, stream), UsageError);
    } else {
      kernels::gemm_by(name, call, stream);
      EXPECT_LT(relative_error(c.download(stream), expected), 2e-6) << name;
    }
    EXPECT_THROW(kernels::gemm_by("nope", call, stream), UsageError);
    call.shape.a_form = Form::kTransposed;
    call.shape.a_stride = 40;
    EXPECT_THROW(kernels::gemm_by("wgmma_128x128", call, stream), UsageError) << "both transposed";
  }
}

}  // namespace

bool testing::gemm_mma_scenario(device::Stream& stream) {
  // Five and a half steps: every stage is filled again.
  const GemmShape shape = make_shape(16, 16, 176, Form::kPlain, Form::kPlain, 0);
  const Inputs inputs = make_inputs(shape);
  const DeviceArray<bf16> a(inputs.a, stream), b(inputs.b, stream);
  const DeviceArray<float> c(16 * 16);
  DeviceGemm call = plain_call(shape, a, b, c);
  kernels::gemm_mma_small().run(call, stream);
  return relative_error(c.download(stream), reference(shape, inputs, 1, 0)) < 2e-6;
}

// Six steps, so that stages are filled again, and edges on all sides; operands of both majors.
bool testing::gemm_wgmma_scenario(device::Stream& stream) {
  const auto is_right = [&](const GemmShape& shape) {
    const Inputs inputs = make_inputs(shape);
    const DeviceArray<bf16> a(inputs.a, stream), b(inputs.b, stream);
    const DeviceArray<float> c(static_cast<std::size_t>(shape.m * shape.n));
    kernels::gemm_wgmma().run(plain_call(shape, a, b, c), stream);
    return relative_error(c.download(stream), reference(shape, inputs, 1, 0)) < 2e-6;
  };
  return is_right(make_shape(136, 40, 328, Form::kPlain, Form::kTransposed, 0)) &&
         is_right(make_shape(72, 40, 328, Form::kTransposed, Form::kPlain, 0));
}

}  // namespace sinew
