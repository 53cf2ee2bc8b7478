// The step that the tests of every AdamW take: each term of the formula has its part in it.
#pragma once

#include "kernels/adamw.h"

namespace sinew::kernels {

inline AdamW options_at(std::int64_t step) {
  return {.lr = 1e-2,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .epsilon = 1e-8,
          .weight_decay = 0.1,
          .gradient_scale = 0.5,
          .step = step};
}

}  // namespace sinew::kernels
