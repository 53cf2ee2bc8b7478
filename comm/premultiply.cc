// Engine's pre-multiplied sums: the input times one factor, before anything is summed.
#include <algorithm>
#include <cstring>

#include "comm/engine.h"
#include "kernels/reduce.h"

namespace sinew::comm {

namespace {

// Of copies of the factor: a multiple of every element, in the first-level cache beside the rest.
constexpr std::int64_t kFactorBytes = 4096;

}  // namespace

// A product in the reductions' own table: the type's arithmetic, one rounding.
const void* Engine::premultiply(const Ask& ask, std::vector<std::byte>& room) const {
  const auto element = static_cast<std::int64_t>(size_of(ask.dtype));
  const bool equal_blocks = ask.op == sched::Collective::kReduceScatter && ask.counts == nullptr;
  const std::int64_t count = equal_blocks ? ask.count * world_ : ask.count;
  const std::int64_t size = count * element;
  std::byte* target = static_cast<std::byte*>(ask.output);
  if (ask.op != sched::Collective::kAllReduce) {
    if (room.size() < static_cast<std::size_t>(size)) room.resize(static_cast<std::size_t>(size));
    target = room.data();
  }
  alignas(64) std::byte factors[kFactorBytes];
  for (std::int64_t at = 0; at < std::min(size, kFactorBytes); at += element)
    std::memcpy(factors + at, ask.factor, static_cast<std::size_t>(element));
  const auto* input = static_cast<const std::byte*>(ask.input);
  for (std::int64_t at = 0; at < size; at += kFactorBytes) {
    kernels::reduce(ReduceOp::kProd, ask.dtype, target + at, input + at, factors,
                    std::min(kFactorBytes, size - at) / element);
  }
  return target;
}

}  // namespace sinew::comm
