#include "bench/bound.h"

#include <algorithm>

#include "sched/base/partition.h"

namespace sinew::bench {

sched::Cost lower_bound(sched::Collective op, int world) {
  using sched::Collective;
  const double rounds = ceil_log2(world);
  const double others = static_cast<double>(world - 1) / world;
  switch (op) {
    case Collective::kAllReduce:
      return {rounds, 2 * others, others};
    case Collective::kReduceScatter:
      return {rounds, others, others};
    case Collective::kReduce:
      return {rounds, world > 1 ? 1.0 : 0.0, others};
    case Collective::kBroadcast:
      return {rounds, world > 1 ? 1.0 : 0.0, 0};
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return {rounds, others, 0};
    case Collective::kBarrier:
      return {rounds, 0, 0};
  }
  __builtin_unreachable();
}

double bound_s(sched::Collective op, int world, double bytes, const LinkModel& links) {
  const sched::Cost cost = lower_bound(op, world);
  const double rounds = links.least.one_port ? cost.rounds : std::min(cost.rounds, 1.0);
  return std::max({rounds * links.least.alpha_s, cost.bytes * bytes * links.least.beta_s_per_byte,
                   cost.reduced * bytes * links.least.gamma_s_per_byte});
}

double predicted_s(const sched::Cost& cost, double bytes, const LinkModel& links) {
  if (cost.rounds == 0) return 0;
  return cost.rounds * links.message_s(cost.bytes * bytes / cost.rounds) +
         cost.reduced * bytes * links.gamma_s_per_byte;
}

}  // namespace sinew::bench
