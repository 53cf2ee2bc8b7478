#include "model/device.h"

#include <fmt/format.h>

#include "kernels/attention_gpu.h"
#include "kernels/layer_norm_gpu.h"
#include "model/quote.h"

namespace sinew::model {

std::string refuse_on_device(const TrainPlan& plan) {
  const TrainOptions& o = plan.options;
  if (o.dtype != "bf16")
    return fmt::format("dtype {} on a device; legal values: bf16, or --device cpu", o.dtype);
  if (o.gradients == "bf16")
    return "gradients bf16 on a device; legal values: auto (f32), or --device cpu";
  if (o.row_chunks > 1)
    return fmt::format("{} row chunks on a device; legal values: 1, or --device cpu", o.row_chunks);
  if (!o.offload.empty())
    return fmt::format(
        "offload {} on a device, whose memory holds the optimizer's state; "
        "legal values: none, or --device cpu",
        quoted(o.offload));
  const std::int64_t width = plan.config.head_dim();
  if (width % 8 != 0 || width > kernels::kAttentionWidthMax)
    return fmt::format(
        "heads of {} channels on a device; legal values: multiples of 8 up to {}, or --device cpu",
        width, kernels::kAttentionWidthMax);
  if (plan.config.channels > kernels::kNormChannelsMax)
    return fmt::format("{} channels on a device; legal values: up to {}, or --device cpu",
                       plan.config.channels, kernels::kNormChannelsMax);
  return {};
}

}  // namespace sinew::model
