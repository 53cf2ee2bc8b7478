// The generators and closed forms of the collective algorithms, one file each; registry.cc lists
// them.
#pragma once

#include <string>

#include "sched/collective/registry.h"

namespace sinew::sched {

// ring.cc
void ring_all_reduce(const Params& params, Builder& b);
void ring_reduce_scatter(const Params& params, Builder& b);
void ring_all_gather(const Params& params, Builder& b);
Cost ring_all_reduce_cost(const Params& params);
Cost ring_reduce_scatter_cost(const Params& params);
Cost ring_all_gather_cost(const Params& params);

// binomial.cc
void binomial_broadcast(const Params& params, Builder& b);
void binomial_reduce(const Params& params, Builder& b);
void binomial_all_reduce(const Params& params, Builder& b);
Cost binomial_broadcast_cost(const Params& params);
Cost binomial_reduce_cost(const Params& params);
Cost binomial_all_reduce_cost(const Params& params);

// recursive_doubling.cc
void recursive_doubling_all_reduce(const Params& params, Builder& b);
void recursive_doubling_all_gather(const Params& params, Builder& b);
Cost recursive_doubling_all_reduce_cost(const Params& params);
Cost recursive_doubling_all_gather_cost(const Params& params);

// halving_doubling.cc
void halving_reduce_scatter(const Params& params, Builder& b);
void halving_doubling_all_reduce(const Params& params, Builder& b);
Cost halving_reduce_scatter_cost(const Params& params);
Cost halving_doubling_all_reduce_cost(const Params& params);
int halving_doubling_chunks(const Params& params);

// direct.cc
void direct_broadcast(const Params& params, Builder& b);
void direct_reduce(const Params& params, Builder& b);
void direct_reduce_scatter(const Params& params, Builder& b);
void direct_all_gather(const Params& params, Builder& b);
void one_shot_all_reduce(const Params& params, Builder& b);
void two_shot_all_reduce(const Params& params, Builder& b);
Cost direct_broadcast_cost(const Params& params);
Cost direct_reduce_cost(const Params& params);
Cost direct_reduce_scatter_cost(const Params& params);
Cost direct_all_gather_cost(const Params& params);
Cost one_shot_all_reduce_cost(const Params& params);
Cost two_shot_all_reduce_cost(const Params& params);

// circulant.cc
void circulant_reduce_scatter(const Params& params, Builder& b);
void circulant_all_gather(const Params& params, Builder& b);
void circulant_all_reduce(const Params& params, Builder& b);
Cost circulant_reduce_scatter_cost(const Params& params);
Cost circulant_all_gather_cost(const Params& params);
Cost circulant_all_reduce_cost(const Params& params);

}  // namespace sinew::sched
