#include "model/gather.h"

#include <algorithm>

namespace sinew::model {

template <typename T>
Trainer::Tensors gather(const Config& config, const Stage<T>& stage, const Optimizer<T>& optimizer,
                        Parallel& parallel, Array array) {
  // All tensors back to back, so that one sum gathers them.
  const std::vector<Parameter> whole = whole_parameters(config);
  std::vector<std::int64_t> begin;
  std::int64_t total = 0;
  for (const Parameter& p : whole) {
    begin.push_back(total);
    total += p.slice.logical_count();
  }
  std::vector<double> values(static_cast<std::size_t>(total), 0.0);
  for (const Parameter& p : stage.parameters()) {
    if (!holds_for_all(p, parallel.coordinates()) || !optimizer.stands_for_owned()) continue;
    double* tensor = values.data() + begin[static_cast<std::size_t>(p.index)];
    for (const Piece& owned : optimizer.owned()) {
      const auto copy_from = [&](const auto* source) {
        for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                            [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                              const auto* from = source + (flat - owned.flat_begin);
                              std::transform(from, from + count, tensor + logical, [](auto value) {
                                return static_cast<double>(kernels::widen(value));
                              });
                            });
      };
      if (array == Array::kGradients) {
        stage.units().with_gradients(
            [&](const auto* gradients) { copy_from(gradients + owned.gradient_begin); });
      } else if (optimizer.updates_wide()) {
        copy_from(static_cast<const kernels::Wide<T>*>(optimizer.masters(owned)));
      } else {
        copy_from(stage.weights() + owned.weight_begin);
      }
    }
  }
  // Every element has one holder, so the sum is exact.
  sum_over(&parallel.world(), values.data(), total);

  Trainer::Tensors tensors;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto first = values.begin() + begin[i];
    tensors[whole[i].name].assign(first, first + whole[i].slice.logical_count());
  }
  return tensors;
}

template Trainer::Tensors gather<float>(const Config&, const Stage<float>&, const Optimizer<float>&,
                                        Parallel&, Array);
template Trainer::Tensors gather<bf16>(const Config&, const Stage<bf16>&, const Optimizer<bf16>&,
                                       Parallel&, Array);
template Trainer::Tensors gather<double>(const Config&, const Stage<double>&,
                                         const Optimizer<double>&, Parallel&, Array);

}  // namespace sinew::model
