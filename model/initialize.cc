#include "model/initialize.h"

#include "sched/base/philox.h"

namespace sinew::model {

namespace {
constexpr std::uint32_t kInitPurpose = 0x1217;
}

template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage) {
  const Philox random(seed, kInitPurpose);
  for (const Parameter& p : stage.parameters()) {
    const auto stream = static_cast<std::uint64_t>(p.index);
    p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
      T* target = stage.weights() + p.offset + local;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto index = static_cast<std::uint64_t>(logical + i);
        target[i] = static_cast<T>(p.init_std > 0 ? p.init_std * random.normal(index, stream)
                                                  : p.init_value);
      }
    });
  }
}

template void initialize_weights<float>(std::uint64_t, Stage<float>&);
template void initialize_weights<double>(std::uint64_t, Stage<double>&);

}  // namespace sinew::model
