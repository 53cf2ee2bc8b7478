#include "model/gather.h"

namespace sinew::model {

template <typename T>
Trainer::Tensors gather(const Config& config, const Stage<T>& stage, const Optimizer<T>& optimizer,
                        Parallel& parallel, const T* flat) {
  Trainer::Tensors tensors;
  for (const Parameter& p : whole_parameters(config)) {
    tensors[p.name].assign(static_cast<std::size_t>(p.slice.logical_count()), 0.0);
  }
  for (const Parameter& p : stage.parameters()) {
    if (!holds_for_all(p, parallel.coordinates()) || !optimizer.stands_for_owned()) continue;
    std::vector<double>& tensor = tensors[p.name];
    for (const Owned& owned : optimizer.owned()) {
      for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                          [&](std::int64_t at, std::int64_t logical, std::int64_t count) {
                            for (std::int64_t i = 0; i < count; ++i) {
                              tensor[static_cast<std::size_t>(logical + i)] =
                                  static_cast<double>(flat[at + i]);
                            }
                          });
    }
  }
  // Every element has one holder, so the sum is exact.
  for (auto& [name, tensor] : tensors) {
    sum_over(&parallel.world(), tensor.data(), static_cast<std::int64_t>(tensor.size()));
  }
  return tensors;
}

template Trainer::Tensors gather<float>(const Config&, const Stage<float>&, const Optimizer<float>&,
                                        Parallel&, const float*);
template Trainer::Tensors gather<double>(const Config&, const Stage<double>&,
                                         const Optimizer<double>&, Parallel&, const double*);

}  // namespace sinew::model
