// A smooth function of a >= 0 that falls to nothing, as quadratics on equal segments: the values of
// an activation that is stored in bf16 need few digits, and a look-up in registers costs a third of
// an exponential and a division.
//
// Segment i of kSegments has its centre at a = i limit / (kSegments - 1); on it, with r in [-1/2,
// 1/2] the distance from the centre in segments, f = constant + r (linear + r square). The
// quadratic goes through f at the nodes of the third Chebyshev polynomial, one of which is the
// centre: the error is at most max |f'''| (limit / (kSegments - 1))^3 / 192, and f(0) is as exact
// as a float. The last segment, where a is clamped to limit, is 0.
#pragma once

namespace sinew::kernels {

inline constexpr int kSegments = 32;

struct Quadratics {
  template <class Function>
  Quadratics(float greatest, const Function& f)
      : limit(greatest), scale((kSegments - 1) / greatest) {
    const double step = static_cast<double>(greatest) / (kSegments - 1);
    const double node = 0.43301270189221932;  // sqrt(3)/4
    for (int i = 0; i + 1 < kSegments; ++i) {
      const double before = f((i - node) * step);
      const double at = f(i * step);
      const double after = f((i + node) * step);
      constant[i] = static_cast<float>(at);
      linear[i] = static_cast<float>((after - before) / (2 * node));
      square[i] = static_cast<float>((after + before - 2 * at) / (2 * node * node));
    }
  }

  float limit;
  float scale;  // segments per unit of a
  alignas(64) float constant[kSegments] = {};
  alignas(64) float linear[kSegments] = {};
  alignas(64) float square[kSegments] = {};
};

}  // namespace sinew::kernels
