// The memory-bound kernels of a training step, at the widths of one layer of GPT-2 124M, 768
// channels and 3072 in the feed-forward layer: a few tokens (in the first level cache), 256 (in the
// others) and 8192 (from memory), or as many elements.
#include <fmt/format.h>

#include <vector>

#include "bench/kernels/memory_bound.h"
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "kernels/registry.h"

namespace sinew::bench {
namespace {

using namespace kernels;  // every kernel under test; NOLINT(google-build-using-namespace)

template <typename T>
void register_rows(std::string_view type, std::int64_t rows) {
  // Four rows: as many channels as the first level cache holds.
  const std::int64_t channels = rows == 4 ? 512 : 768;
  const auto at = [&](const char* what) { return fmt::format("{}/{}/{}", what, type, rows); };
  add_versions<LayerNormFunctions<T>>(at("layer_norm_forward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    const std::vector<T> weight(channels, narrow<T>(1.0F));
    std::vector<float> mean(rows), rstd(rows);
    measure(state, m.traffic(1, 1, 2), [&] {
      f.forward({rows, channels}, m.get(0), weight.data(), weight.data(), 1e-5F, m.get(1),
                mean.data(), rstd.data());
    });
  });
  add_versions<LayerNormFunctions<T>>(at("residual_layer_norm"), [=](auto& state, const auto& f) {
    const Matrices<T> m(3, rows, channels);
    const std::vector<T> weight(channels, narrow<T>(1.0F));
    std::vector<float> mean(rows), rstd(rows);
    measure(state, m.traffic(2, 2, 3), [&] {
      f.residual_forward({rows, channels}, m.get(0), m.get(1), weight.data(), weight.data(), 1e-5F,
                         m.get(2), mean.data(), rstd.data());
    });
  });
  // The public function, since it blocks the two halves.
  add_benchmark(at("layer_norm_backward") + "/best", [=](benchmark::State& state) {
    const Matrices<T> m(3, rows, channels);
    const std::vector<T> weight(channels, narrow<T>(1.0F));
    const std::vector<float> mean(rows, 0.1F), rstd(rows, 0.9F);
    std::vector<float> d_weight(channels), d_bias(channels);
    measure(state, m.traffic(3, 1, 3), [&] {
      layer_norm_backward<T>({rows, channels}, m.get(0), m.get(1), weight.data(), mean.data(),
                             rstd.data(), Write::kAccumulate, m.get(2), d_weight.data(),
                             d_bias.data());
    });
  });
  add_versions<EmbeddingFunctions<T>>(at("embedding_forward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    std::vector<std::int32_t> tokens(rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7919 % rows);
    }
    const EmbeddingShape shape{1, rows, channels, 0, rows};
    measure(state, m.traffic(1, 1, 2),
            [&] { f.forward(shape, tokens.data(), m.get(0), nullptr, m.get(1), 0, rows); });
  });
  add_versions<EmbeddingFunctions<T>>(at("embedding_backward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(1, rows, channels);
    const Matrices<float> table(1, rows, channels);
    std::vector<std::int32_t> tokens(rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7919 % rows);
    }
    const EmbeddingShape shape{1, rows, channels, 0, rows};
    measure(
        state,
        {m.bytes + table.bytes, table.bytes, static_cast<std::int64_t>(m.bytes + table.bytes)},
        [&] { f.backward(shape, tokens.data(), m.get(0), table.get(0), nullptr, 0, channels); });
  });
}

template <typename T>
void register_feed_forward(std::string_view type, std::int64_t rows) {
  const std::int64_t channels = 3072;
  const auto at = [&](const char* what) { return fmt::format("{}/{}/{}", what, type, rows); };
  add_versions<GeluFunctions<T>>(at("gelu_forward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    measure(state, m.traffic(1, 1, 2), [&] { f.forward(m.get(0), m.get(1), m.count); });
  });
  add_versions<GeluFunctions<T>>(at("gelu_backward_inplace"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    measure(state, m.traffic(2, 1, 2), [&] { f.backward(m.get(0), m.get(1), m.get(0), m.count); });
  });
  add_versions<GeluFunctions<T>>(at("bias_gelu_forward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    const std::vector<T> bias(channels);
    measure(state, m.traffic(1, 2, 2),
            [&] { f.bias_forward(m.get(0), bias.data(), m.get(1), rows, channels); });
  });
  add_versions<GeluFunctions<T>>(at("bias_gelu_backward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    std::vector<float> d_bias(channels);
    measure(state, m.traffic(2, 1, 2), [&] {
      f.bias_backward(m.get(0), m.get(1), m.get(0), d_bias.data(), rows, channels, 0, channels);
    });
  });
  add_versions<ElementwiseFunctions<T>>(at("add"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    measure(state, m.traffic(2, 1, 2), [&] { f.add(m.get(0), m.get(1), m.count); });
  });
  add_versions<ElementwiseFunctions<T>>(at("add_bias"), [=](auto& state, const auto& f) {
    const Matrices<T> m(1, rows, channels);
    const std::vector<T> bias(channels);
    measure(state, m.traffic(1, 1, 1), [&] { f.add_bias(m.get(0), bias.data(), rows, channels); });
  });
  add_versions<ElementwiseFunctions<T>>(at("bias_backward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(1, rows, channels);
    std::vector<float> d_bias(channels);
    measure(state, m.traffic(1, 0, 1),
            [&] { f.bias_backward(m.get(0), d_bias.data(), rows, channels, 0, channels); });
  });
  add_versions<ElementwiseFunctions<T>>(at("sum_of_squares"), [=](auto& state, const auto& f) {
    const Matrices<T> m(1, rows, channels);
    measure(state, m.traffic(1, 0, 1),
            [&] { benchmark::DoNotOptimize(f.sum_of_squares(m.get(0), m.count)); });
  });
}

template <typename T>
void register_cross_entropy(std::string_view type, std::int64_t rows) {
  // One row: a slice of the vocabulary that the first level cache holds.
  const std::int64_t columns = rows == 1 ? 6144 : 50304;
  const CrossEntropyShape shape{rows, columns, 0, columns - 47};
  const auto at = [&](const char* what) { return fmt::format("{}/{}/{}", what, type, rows); };
  struct Stats {
    explicit Stats(std::int64_t n)
        : targets(static_cast<std::size_t>(n), 7),
          row_max(targets.size(), 2.0F),
          sum_exp(targets.size(), 10000.0F),
          target_logit(targets.size()) {}
    std::vector<std::int32_t> targets;
    std::vector<float> row_max, sum_exp, target_logit;
  };
  add_versions<CrossEntropyFunctions<T>>(at("cross_entropy_max"), [=](auto& state, const auto& f) {
    const Matrices<T> m(1, rows, columns);
    Stats s(rows);
    measure(state, m.traffic(1, 0, 1), [&] { f.max(shape, m.get(0), s.row_max.data()); });
  });
  add_versions<CrossEntropyFunctions<T>>(at("cross_entropy_sums"), [=](auto& state, const auto& f) {
    const Matrices<T> m(1, rows, columns);
    Stats s(rows);
    measure(state, m.traffic(1, 0, 1), [&] {
      f.sums(shape, m.get(0), s.targets.data(), s.row_max.data(), s.sum_exp.data(),
             s.target_logit.data());
    });
  });
  add_versions<CrossEntropyFunctions<T>>(
      at("cross_entropy_backward"), [=](auto& state, const auto& f) {
        const Matrices<T> m(1, rows, columns);
        Stats s(rows);
        measure(state, m.traffic(1, 1, 1), [&] {
          f.backward(shape, m.get(0), s.targets.data(), s.row_max.data(), s.sum_exp.data(), 1.0F);
        });
      });
}

void register_adamw(std::int64_t count) {
  add_versions<AdamWFunctions<float>>(
      fmt::format("adamw/f32/{}", count), [=](auto& state, const auto& f) {
        const Matrices<float> m(4, 1, count);
        for (std::int64_t i = 0; i < count; ++i) m.get(3)[i] = std::abs(m.get(3)[i]);
        measure(state, m.traffic(4, 3, 4),
                [&] { f.step({}, count, m.get(0), m.get(1), m.get(2), m.get(3)); });
      });
}

const bool kRegistered = [] {
  for (const std::int64_t rows : {4, 256, 8192}) {
    register_rows<float>("f32", rows);
    register_rows<bf16>("bf16", rows);
  }
  for (const std::int64_t rows : {1, 128, 4096}) {
    register_feed_forward<float>("f32", rows);
    register_feed_forward<bf16>("bf16", rows);
  }
  for (const std::int64_t rows : {1, 8, 256}) {
    register_cross_entropy<float>("f32", rows);
    register_cross_entropy<bf16>("bf16", rows);
  }
  for (const int power : {10, 16, 24}) register_adamw(std::int64_t{1} << power);
  return true;
}();

}  // namespace
}  // namespace sinew::bench
