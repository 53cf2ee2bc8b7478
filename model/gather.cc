#include "model/gather.h"

#include <limits>

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
  // Of each element the largest that any rank holds, and of its negative: no two copies differ when
  // one is the other's negative.
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  std::vector<double> values(2 * static_cast<std::size_t>(total), kNothing);
  for (const Parameter& p : stage.parameters()) {
    double* tensor = values.data() + begin[static_cast<std::size_t>(p.index)];
    for (const Piece& owned : optimizer.owned()) {
      const auto copy_from = [&](const auto* source) {
        for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                            [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                              const auto* from = source + (flat - owned.flat_begin);
                              for (std::int64_t i = 0; i < count; ++i) {
                                const auto value = static_cast<double>(kernels::widen(from[i]));
                                tensor[logical + i] = value;
                                tensor[total + logical + i] = -value;
                              }
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
  max_over(&parallel.world(), values.data(), 2 * total, DType::kF64);
  for (std::int64_t i = 0; i < total; ++i) {
    double& value = values[static_cast<std::size_t>(i)];
    if (value != -values[static_cast<std::size_t>(total + i)])
      value = std::numeric_limits<double>::quiet_NaN();
  }

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
