// What mixed precision adds to a step: conversions, AdamW of bf16 weights; and dropout, which
// shares their random bits. In the second level cache and from memory.
#include <fmt/format.h>

#include "bench/kernels/memory_bound.h"
#include "kernels/convert.h"
#include "kernels/dropout.h"
#include "kernels/mixed_adamw.h"

namespace sinew::bench {
namespace {

using namespace kernels;  // every kernel under test; NOLINT(google-build-using-namespace)

// Arrays of f32 and of Narrow beside each other.
template <typename Narrow>
struct Pair {
  explicit Pair(std::int64_t n)
      : count(n),
        wide_bytes(static_cast<double>(n) * 4),
        narrow_bytes(static_cast<double>(n) * sizeof(Narrow)),
        arrays(2, n * 4) {
    fill(wide(), count);
    convert_down();
  }
  [[nodiscard]] float* wide() const { return arrays.get<float>(0); }
  [[nodiscard]] Narrow* narrow() const { return arrays.get<Narrow>(1); }
  void convert_down() const {
    if constexpr (sizeof(Narrow) == 1)
      quantize(wide(), 1.0F, narrow(), count);
    else
      convert(wide(), narrow(), count);
  }
  [[nodiscard]] Traffic traffic(double read, double written) const {
    return {read, written, static_cast<std::int64_t>(wide_bytes + narrow_bytes)};
  }
  std::int64_t count;
  double wide_bytes;
  double narrow_bytes;
  Arrays arrays;
};

template <typename Narrow, typename Down, typename Up>
void register_conversion(const char* type, std::int64_t count, Down down, Up up) {
  add_versions<ConvertFunctions>(fmt::format("convert_to/{}/{}", type, count),
                                 [=](auto& state, const auto& f) {
                                   const Pair<Narrow> p(count);
                                   measure(state, p.traffic(p.wide_bytes, p.narrow_bytes),
                                           [&] { down(f, p.wide(), p.narrow(), count); });
                                 });
  add_versions<ConvertFunctions>(fmt::format("convert_from/{}/{}", type, count),
                                 [=](auto& state, const auto& f) {
                                   const Pair<Narrow> p(count);
                                   measure(state, p.traffic(p.narrow_bytes, p.wide_bytes),
                                           [&] { up(f, p.narrow(), p.wide(), count); });
                                 });
}

void register_conversions(std::int64_t n) {
  using F = ConvertFunctions;
  register_conversion<bf16>(
      "bf16", n, [](const F& f, const float* s, bf16* t, auto c) { f.to_bf16(s, t, c); },
      [](const F& f, const bf16* s, float* t, auto c) { f.from_bf16(s, t, c); });
  register_conversion<f16>(
      "f16", n, [](const F& f, const float* s, f16* t, auto c) { f.to_f16(s, t, c); },
      [](const F& f, const f16* s, float* t, auto c) { f.from_f16(s, t, c); });
  register_conversion<e4m3>(
      "e4m3", n, [](const F& f, const float* s, e4m3* t, auto c) { f.to_e4m3(s, 2.0F, t, c); },
      [](const F& f, const e4m3* s, float* t, auto c) { f.from_e4m3(s, 0.5F, t, c); });
  register_conversion<e5m2>(
      "e5m2", n, [](const F& f, const float* s, e5m2* t, auto c) { f.to_e5m2(s, 2.0F, t, c); },
      [](const F& f, const e5m2* s, float* t, auto c) { f.from_e5m2(s, 0.5F, t, c); });
  add_versions<F>(fmt::format("max_abs/f32/{}", n), [=](auto& state, const auto& f) {
    const Matrices<float> m(1, 1, n);
    measure(state, m.traffic(1, 0, 1), [&] { benchmark::DoNotOptimize(f.max_abs(m.get(0), n)); });
  });
}

template <typename T>
void register_dropout(std::string_view type, std::int64_t rows) {
  const std::int64_t columns = 768;
  const DropoutShape shape{rows, columns, 0, 0, columns};
  const std::uint32_t threshold = drop_threshold(0.1);
  add_versions<DropoutFunctions<T>>(
      fmt::format("dropout/{}/{}", type, rows), [=](auto& state, const auto& f) {
        const Matrices<T> m(2, rows, columns);
        measure(state, m.traffic(1, 1, 2), [&] {
          f.assign({1, 2, 3}, threshold, 1 / 0.9F, shape, m.get(0), m.get(1));
        });
      });
  add_versions<DropoutFunctions<T>>(
      fmt::format("dropout_add/{}/{}", type, rows), [=](auto& state, const auto& f) {
        const Matrices<T> m(2, rows, columns);
        measure(state, m.traffic(2, 1, 2), [&] {
          f.add({1, 2, 3}, threshold, 1 / 0.9F, shape, m.get(0), m.get(1));
        });
      });
}

void register_adamw(std::int64_t count) {
  const auto bytes = static_cast<double>(count);
  add_versions<MixedAdamWFunctions>(
      fmt::format("adamw_with_master/bf16/{}", count), [=](auto& state, const auto& f) {
        const Matrices<float> m(5, 1, count);
        for (std::int64_t i = 0; i < count; ++i) m.get(3)[i] = std::abs(m.get(3)[i]);
        measure(state, {16 * bytes, 14 * bytes, 18 * count}, [&] {
          f.with_master({}, count, m.get(0), m.get(1), m.arrays.template get<bf16>(4), m.get(2),
                        m.get(3));
        });
      });
  add_versions<MixedAdamWFunctions>(
      fmt::format("adamw_stochastic/bf16/{}", count), [=](auto& state, const auto& f) {
        const Matrices<float> m(4, 1, count);
        for (std::int64_t i = 0; i < count; ++i) m.get(3)[i] = std::abs(m.get(3)[i]);
        fill(m.arrays.template get<bf16>(1), count);
        measure(state, {14 * bytes, 10 * bytes, 14 * count}, [&] {
          f.stochastic({}, {1, 2, 3}, 0, count, m.get(0), m.arrays.template get<bf16>(1), m.get(2),
                       m.get(3));
        });
      });
}

const bool kRegistered = [] {
  for (const int power : {10, 16, 24}) {
    const std::int64_t count = std::int64_t{1} << power;
    register_conversions(count);
    register_adamw(count);
  }
  for (const std::int64_t rows : {4, 64, 8192}) {
    register_dropout<float>("f32", rows);
    register_dropout<bf16>("bf16", rows);
  }
  return true;
}();

}  // namespace
}  // namespace sinew::bench
