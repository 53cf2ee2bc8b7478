// The plain rotary embedding.
#include "kernels/rope.h"

namespace sinew::kernels {
namespace {

template <typename T>
void turn(const RopeShape& shape, HeadView<T> x, const Wide<T>* cosine, const Wide<T>* sine,
          Turn direction, std::int64_t begin, std::int64_t end) {
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t at = begin; at < end; ++at) {
    const std::int64_t t = at % shape.time;
    T* token = x.data + at / shape.time * x.batch_stride + t * x.time_stride;
    for (std::int64_t h = 0; h < shape.heads; ++h, token += shape.head_dim) {
      for (std::int64_t i = 0; i < half; ++i) {
        const Wide<T> c = cosine[t * half + i];
        const Wide<T> s = direction == Turn::kForward ? sine[t * half + i] : -sine[t * half + i];
        const Wide<T> a = widen(token[i]);
        const Wide<T> b = widen(token[i + half]);
        token[i] = narrow<T>(a * c - b * s);
        token[i + half] = narrow<T>(b * c + a * s);
      }
    }
  }
}

}  // namespace

template <typename T>
const RopeFunctions<T>& rope_plain() {
  static constexpr RopeFunctions<T> table = {turn<T>};
  return table;
}
template const RopeFunctions<float>& rope_plain();
template const RopeFunctions<double>& rope_plain();
template const RopeFunctions<bf16>& rope_plain();

}  // namespace sinew::kernels
