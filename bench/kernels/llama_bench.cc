// The memory-bound kernels of a Llama layer: RMSNorm, SwiGLU, rotary embedding; 2048 channels, 8192
// in the feed-forward layer, 32 heads of 64; one token (in the first level cache), a few (in the
// others) and many (from memory).
#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "bench/kernels/memory_bound.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace sinew::bench {
namespace {

using namespace kernels;  // every kernel under test; NOLINT(google-build-using-namespace)

template <typename T>
void register_norm(std::string_view type, std::int64_t rows) {
  const std::int64_t channels = 2048;
  const auto at = [&](const char* what) { return fmt::format("{}/{}/{}", what, type, rows); };
  add_versions<RmsNormFunctions<T>>(at("rms_norm_forward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(2, rows, channels);
    const std::vector<T> weight(channels, narrow<T>(1.0F));
    std::vector<float> rstd(rows);
    measure(state, m.traffic(1, 1, 2), [&] {
      f.forward({rows, channels}, m.get(0), weight.data(), 1e-5F, m.get(1), rstd.data());
    });
  });
  add_versions<RmsNormFunctions<T>>(at("residual_rms_norm"), [=](auto& state, const auto& f) {
    const Matrices<T> m(3, rows, channels);
    const std::vector<T> weight(channels, narrow<T>(1.0F));
    std::vector<float> rstd(rows);
    measure(state, m.traffic(2, 2, 3), [&] {
      f.residual_forward({rows, channels}, m.get(0), m.get(1), weight.data(), 1e-5F, m.get(2),
                         rstd.data());
    });
  });
  add_versions<RmsNormFunctions<T>>(at("rms_norm_backward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(3, rows, channels);
    const std::vector<T> weight(channels, narrow<T>(1.0F));
    const std::vector<float> rstd(rows, 0.9F);
    std::vector<float> d_weight(channels);
    measure(state, m.traffic(3, 1, 3), [&] {
      f.backward({rows, channels}, m.get(0), m.get(1), weight.data(), rstd.data(),
                 Write::kAccumulate, m.get(2), d_weight.data());
    });
  });
}

template <typename T>
void register_swiglu(std::string_view type, std::int64_t rows) {
  // One row: as many channels as the first level cache holds.
  const std::int64_t channels = rows == 1 ? 2048 : 8192;
  const auto at = [&](const char* what) { return fmt::format("{}/{}/{}", what, type, rows); };
  add_versions<SwigluFunctions<T>>(at("swiglu_forward"), [=](auto& state, const auto& f) {
    const Matrices<T> m(3, rows, channels);
    measure(state, m.traffic(2, 1, 3), [&] {
      f.forward({rows, channels, channels}, m.get(0), m.get(1), m.get(2));
    });
  });
  add_versions<SwigluFunctions<T>>(at("swiglu_backward_inplace"), [=](auto& state, const auto& f) {
    const Matrices<T> m(3, rows, channels);
    measure(state, m.traffic(3, 2, 3), [&] {
      f.backward({rows, channels, channels}, m.get(2), m.get(0), m.get(1), m.get(0), m.get(1));
    });
  });
}

template <typename T>
void register_rope(std::string_view type, std::int64_t time) {
  add_versions<RopeFunctions<T>>(
      fmt::format("rope/{}/{}", type, time), [=](auto& state, const auto& f) {
        const RopeShape shape{1, time, 32, 64};
        const std::int64_t width = shape.heads * shape.head_dim;
        const Matrices<T> m(1, time, width);
        std::vector<std::int32_t> positions(time);
        std::iota(positions.begin(), positions.end(), 0);
        std::vector<float> cosine(time * 32), sine(time * 32);
        rope_table<float>(positions, 64, 10000.0, cosine.data(), sine.data());
        measure(state, m.traffic(1, 1, 1), [&] {
          f.turn(shape, {m.get(0), time * width, width}, cosine.data(), sine.data(), Turn::kForward,
                 0, time);
        });
      });
}

const bool kRegistered = [] {
  for (const std::int64_t rows : {1, 64, 4096}) {
    register_norm<float>("f32", rows);
    register_norm<bf16>("bf16", rows);
    register_rope<float>("f32", rows);
    register_rope<bf16>("bf16", rows);
  }
  for (const std::int64_t rows : {1, 16, 1024}) {
    register_swiglu<float>("f32", rows);
    register_swiglu<bf16>("bf16", rows);
  }
  return true;
}();

}  // namespace
}  // namespace sinew::bench
