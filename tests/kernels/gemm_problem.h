// What the tests of GEMM share: shapes, operands with marked gaps, one way to run a version.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/element.h"
#include "kernels/gemm.h"
#include "kernels/registry.h"
#include "tests/kernels/guarded.h"

namespace sinew::kernels {

inline std::string describe(const GemmShape& s) {
  return "m " + std::to_string(s.m) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k) +
         (s.a_form == Form::kPlain ? " N" : " T") + (s.b_form == Form::kPlain ? "N" : "T") +
         " strides " + std::to_string(s.a_stride) + " " + std::to_string(s.b_stride) + " " +
         std::to_string(s.c_stride);
}

inline GemmShape make_shape(std::int64_t m, std::int64_t n, std::int64_t k, Form a_form,
                            Form b_form, std::int64_t gap = 0) {
  return {.m = m,
          .n = n,
          .k = k,
          .a_form = a_form,
          .b_form = b_form,
          .a_stride = (a_form == Form::kPlain ? k : m) + gap,
          .b_stride = (b_form == Form::kPlain ? n : k) + 2 * gap,
          .c_stride = n + 3 * gap};
}

template <typename T>
T a_at(const GemmShape& s, const T* a, std::int64_t i, std::int64_t k) {
  return s.a_form == Form::kPlain ? a[i * s.a_stride + k] : a[k * s.a_stride + i];
}
template <typename T>
T b_at(const GemmShape& s, const T* b, std::int64_t k, std::int64_t j) {
  return s.b_form == Form::kPlain ? b[k * s.b_stride + j] : b[j * s.b_stride + k];
}

enum class Values { kReal, kWhole };

// Operands at a misalignment of one element. Gaps between rows hold NaN in A and B, which must not
// be read into a result, and a mark in C, which must not be written.
template <typename In, typename Out>
struct Operands {
  Operands(const GemmShape& s, std::mt19937_64& random, Values values)
      : a((s.a_form == Form::kPlain ? s.m : s.k) * s.a_stride, 1),
        b((s.b_form == Form::kPlain ? s.k : s.n) * s.b_stride, 1),
        c(s.m * s.c_stride, 1) {
    std::uniform_real_distribution<float> real(-1.0F, 1.0F);
    std::uniform_int_distribution<int> whole(-4, 4);
    const auto value = [&] {
      return values == Values::kWhole ? static_cast<float>(whole(random)) : real(random);
    };
    const auto fill = [&](auto& x, std::int64_t width, std::int64_t stride, float gap) {
      using T = std::remove_reference_t<decltype(x[0])>;
      for (std::int64_t i = 0; i < x.count(); ++i)
        x[i] = narrow<T>(i % stride < width ? value() : gap);
    };
    const float nan = std::numeric_limits<float>::quiet_NaN();
    fill(a, s.a_form == Form::kPlain ? s.k : s.m, s.a_stride, nan);
    fill(b, s.b_form == Form::kPlain ? s.n : s.k, s.b_stride, nan);
    fill(c, s.n, s.c_stride, kMark);
  }
  void expect_untouched_outside(const GemmShape& s) const {
    EXPECT_TRUE(c.is_intact());
    for (std::int64_t i = 0; i < c.count(); ++i) {
      if (i % s.c_stride >= s.n) {
        ASSERT_EQ(widen(c[i]), kMark) << "gap at " << i;
      }
    }
  }
  [[nodiscard]] GemmCall<In, Out> call(const GemmShape& shape, float alpha, float beta) {
    return {
        .shape = shape, .alpha = alpha, .a = a.data(), .b = b.data(), .beta = beta, .c = c.data()};
  }

  static constexpr float kMark = 12352;  // exact in bf16
  Guarded<In> a;
  Guarded<In> b;
  Guarded<Out> c;
};

template <typename In, typename Out>
void run(const GemmFunctions<In>& version, const GemmCall<In, Out>& call,
         const PackedColumns& packed = {}) {
  if constexpr (std::is_same_v<In, Out>)
    version.run(call, packed);
  else
    version.run_wide(call, packed);
}

template <typename T>
std::vector<double> widened(const Guarded<T>& x) {
  std::vector<double> y;
  for (std::int64_t i = 0; i < x.count(); ++i) y.push_back(widen(x[i]));
  return y;
}

inline std::vector<double> magnitudes(std::vector<double> x) {
  for (double& value : x) value = std::fabs(value);
  return x;
}

// Calls body.template operator()<In, Out>() for each pair of types with more than one version.
template <typename Body>
void for_each_fast_type(Body&& body) {
  body.template operator()<float, float>();
  body.template operator()<bf16, bf16>();
  body.template operator()<bf16, float>();
}

// The same and double, whose epilogues are the plain version's.
template <typename Body>
void for_each_vector_type(Body&& body) {
  for_each_fast_type(body);
  body.template operator()<double, double>();
}

}  // namespace sinew::kernels
