// Dropout without a stored mask: element (r, c) of a global matrix is kept iff its 16 random bits,
// drawn by its global index (random.h), are at least probability * 2^16; kept values are divided by
// 1 - probability. Forward, backward and recomputation draw the same bits, and so does any rank
// that holds a part of the matrix. The probability counts as its nearest multiple of 2^-16 below 1,
// in both places, so that the mean stays exact.
//
// x, y: [rows, columns] row-major, a part of a matrix with global_columns columns that starts at
// (first_row, first_column). T is float, double or bf16; arithmetic is Wide<T>, one multiplication
// by 1/(1 - probability). Drawing takes about as long as the bytes of f32 from memory, and longer
// than those of bf16.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/random.h"
#include "kernels/threads.h"

namespace sinew::kernels {

struct DropoutShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t global_columns = 0;
};

// y = dropout(x); y may be x. The backward pass is the same call on the gradient. probability in
// [0, 1).
template <typename T>
void dropout(const RandomStream& random, double probability, const DropoutShape& shape, const T* x,
             T* y, Threads threads = {});
// target += dropout(x): the residual connection.
template <typename T>
void dropout_add(const RandomStream& random, double probability, const DropoutShape& shape,
                 const T* x, T* target, Threads threads = {});

// Bits below the threshold drop their element; what the others are multiplied by.
[[nodiscard]] std::uint32_t drop_threshold(double probability);
[[nodiscard]] double keep_factor(std::uint32_t threshold);

// What one version provides; see registry.h.
template <typename T>
struct DropoutFunctions {
  static constexpr std::string_view kOperation = "dropout";
  using Element = T;
  using Function = void (*)(const RandomStream& random, std::uint32_t threshold, Wide<T> factor,
                            const DropoutShape& shape, const T* x, T* y);
  Function assign;
  Function add;
};
template <typename T>
[[nodiscard]] const DropoutFunctions<T>& dropout_plain();
// Null where this build has no code for `isa`; float and bf16.
template <typename T>
[[nodiscard]] const DropoutFunctions<T>* dropout_simd(Isa isa);

}  // namespace sinew::kernels
