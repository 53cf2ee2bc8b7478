// StepUpdate: what a step of AdamW learns only when it is taken, in the memory of the device that
// takes it. The calls of a step then need no answer from the device while they are queued, and
// their recording serves other steps, too.
//
// Threads: plain values; the host writes them while no queued work uses them.
#pragma once

#include <array>
#include <cstdint>

namespace sinew::kernels {

struct StepUpdate {
  // Told by the host before the step: of AdamWFactors; what the step adds to the streams that
  // stochastic rounding and dropout draw from.
  float lr;
  float correction1;
  float correction2;
  std::uint64_t rounding_stream;
  std::uint64_t dropout_stream;
  float loss_scale;  // of the gradient of the loss
  // Found on the device by finish_norm().
  double norm;           // of the whole gradient
  float gradient_scale;  // the clipping coefficient
  std::int32_t skipped;  // not 0: the norm is not finite, and no weight changes
};

// How a gradient is clipped: by min(1, clip / (norm + guard)); clip 0: never.
struct Clip {
  double clip = 0;
  double guard = 0;
};

// Neighbouring parts of an array, from its beginning on: where each ends.
struct Spans {
  static constexpr int kMost = 24;
  int count = 0;
  std::array<std::int64_t, kMost> end{};
};

}  // namespace sinew::kernels
