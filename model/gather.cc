#include "model/gather.h"

#include <algorithm>

namespace sinew::model {

template <typename T>
Trainer::Tensors gather(const TrainPlan& plan, const Stage<T>& stage, Parallel& parallel,
                        const T* flat, std::int64_t begin, std::int64_t count) {
  Trainer::Tensors tensors;
  const StageShape whole{0, plan.config.layers, true, true};
  for (const Parameter& p : stage_parameters(plan.config, whole, {})) {
    tensors[p.name].assign(static_cast<std::size_t>(p.slice.logical_count()), 0.0);
  }
  const bool sharded = count != stage.count();
  for (const Parameter& p : stage.parameters()) {
    if (!holds_for_all(p, parallel.coordinates()) || (!sharded && parallel.coordinates().dp != 0))
      continue;
    std::vector<double>& tensor = tensors[p.name];
    for_each_run_within(
        p, begin, begin + count, [&](std::int64_t at, std::int64_t logical, std::int64_t length) {
          for (std::int64_t i = 0; i < length; ++i) {
            tensor[static_cast<std::size_t>(logical + i)] = static_cast<double>(flat[at + i]);
          }
        });
  }
  // Every element has one holder, so the sum is exact.
  for (auto& [name, tensor] : tensors) {
    sum_over(&parallel.world(), tensor.data(), static_cast<std::int64_t>(tensor.size()));
  }
  return tensors;
}

template Trainer::Tensors gather<float>(const TrainPlan&, const Stage<float>&, Parallel&,
                                        const float*, std::int64_t, std::int64_t);
template Trainer::Tensors gather<double>(const TrainPlan&, const Stage<double>&, Parallel&,
                                         const double*, std::int64_t, std::int64_t);

}  // namespace sinew::model
