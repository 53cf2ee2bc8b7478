// Rotary position embedding (Su et al. 2021), rotate-half layout: channel i of a head pairs with i
// + head_dim/2 and turns by position * theta^(-2i/head_dim). (Weights trained for interleaved pairs
// must be permuted first.)
//
// x is a view like attention's q and k: element (b, t, h, i) at x + b batch_stride + t time_stride
// + h head_dim + i. cosine, sine: [time, head_dim/2], made by rope_table from *global* positions,
// so that a shard of a sequence turns as the whole does. T is float, double or bf16; arithmetic and
// tables are Wide<T>. Error, float, u = 2^-24: 3 u (|x_i| + |x_j|) for a pair, tables being
// correctly rounded; plus one rounding to bf16.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/threads.h"

namespace sinew::kernels {

struct RopeShape {
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;  // even
};

// Angles in f64, one rounding to W. positions: [time], any order (a rank of a zigzag ring holds two
// ranges).
template <typename W>
void rope_table(std::span<const std::int32_t> positions, std::int64_t head_dim, double theta,
                W* cosine, W* sine);

// Turns x in place: x_i, x_j become x_i cos - x_j sin, x_j cos + x_i sin, for j = i + head_dim/2.
template <typename T>
void rope_forward(const RopeShape& shape, HeadView<T> x, const Wide<T>* cosine, const Wide<T>* sine,
                  Threads threads = {});
// Turns the gradient back, in place: the transpose of a rotation is its inverse.
template <typename T>
void rope_backward(const RopeShape& shape, HeadView<T> d_x, const Wide<T>* cosine,
                   const Wide<T>* sine, Threads threads = {});

enum class Turn : std::uint8_t { kForward, kBack };

// What one version provides; see registry.h. Works on positions [begin, end) of the batch * time
// there are.
template <typename T>
struct RopeFunctions {
  static constexpr std::string_view kOperation = "rope";
  using Element = T;
  void (*turn)(const RopeShape& shape, HeadView<T> x, const Wide<T>* cosine, const Wide<T>* sine,
               Turn direction, std::int64_t begin, std::int64_t end);
};
template <typename T>
[[nodiscard]] const RopeFunctions<T>& rope_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const RopeFunctions<T>* rope_simd(Isa isa);

}  // namespace sinew::kernels
