// The parts of a training step that would otherwise be asked of the device by the host: whether a
// gradient is finite, its norm and the coefficient that clips it.
#pragma once

#include <cstdint>

#include "kernels/device/runtime.h"
#include "kernels/step_update.h"

namespace sinew::kernels {

// flags[k] = 1 where an element of span k of `data` is not finite; other flags stay. Cost: one read
// of the data.
void note_not_finite(const float* data, const Spans& spans, std::uint64_t* flags,
                     device::Stream& stream);

// From square_sums, [count], one of each tensor and added in their order: norm, coefficient and
// whether the step is skipped, into *update. The operations and bits of the host's f64.
void finish_norm(const double* square_sums, std::int64_t count, const Clip& clip,
                 StepUpdate* update, device::Stream& stream);

}  // namespace sinew::kernels
