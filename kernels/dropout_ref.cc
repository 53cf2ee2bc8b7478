// The plain dropout: every element draws its own counter.
#include "kernels/dropout.h"

namespace sinew::kernels {
namespace {

template <typename T>
Wide<T> dropped(const RandomStream& random, std::uint32_t threshold, Wide<T> factor,
                std::int64_t index, T x) {
  return random_bits(random, index) >= threshold ? widen(x) * factor : Wide<T>{0};
}

template <typename T, class Function>
void for_each_element(const DropoutShape& shape, const Function& function) {
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      function(r * shape.columns + c,
               (shape.first_row + r) * shape.global_columns + shape.first_column + c);
    }
  }
}

template <typename T>
void assign(const RandomStream& random, std::uint32_t threshold, Wide<T> factor,
            const DropoutShape& shape, const T* x, T* y) {
  for_each_element<T>(shape, [&](std::int64_t i, std::int64_t index) {
    y[i] = narrow<T>(dropped(random, threshold, factor, index, x[i]));
  });
}

template <typename T>
void add(const RandomStream& random, std::uint32_t threshold, Wide<T> factor,
         const DropoutShape& shape, const T* x, T* y) {
  for_each_element<T>(shape, [&](std::int64_t i, std::int64_t index) {
    y[i] = narrow<T>(widen(y[i]) + dropped(random, threshold, factor, index, x[i]));
  });
}

}  // namespace

template <typename T>
const DropoutFunctions<T>& dropout_plain() {
  static constexpr DropoutFunctions<T> table = {assign<T>, add<T>};
  return table;
}
template const DropoutFunctions<float>& dropout_plain();
template const DropoutFunctions<double>& dropout_plain();
template const DropoutFunctions<bf16>& dropout_plain();

}  // namespace sinew::kernels
