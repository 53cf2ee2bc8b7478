// The table of collective algorithms: the one place where they are listed. Tests, verifier,
// simulator, executor, benchmarks, command line and README loop over it. Adding one: a file
// collective/NAME.cc with its generator, closed form and row, and that row's name in algorithms.h
// and registry.cc.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sched/builder.h"
#include "sched/schedule.h"

namespace sinew::sched {

struct Params {
  int world = 1;
  int root = 0;
  int segments = 1;  // pipelining, for algorithms whose closed form has it
  int radix = 2;     // for k-ary families
};

// Closed-form cost of the busiest rank in the one-port, full-duplex alpha-beta-gamma model. bytes
// and reduced are fractions of m, the bytes of the operation's full vector (collective-cost terms
// in sched/README.md).
struct Cost {
  double rounds = 0;   // coefficient of alpha
  double bytes = 0;    // coefficient of m * beta
  double reduced = 0;  // coefficient of m * gamma
};

struct Algorithm {
  Collective op;
  std::string_view name;     // as on the command line
  std::string_view formula;  // the closed form, for people
  std::string_view source;   // paper or textbook
  void (*generate)(const Params& params, Builder& builder);
  int (*chunks_per_block)(const Params& params);
  // Empty when the parameters are legal, else the rule and the legal values in one line.
  std::string (*refuse)(const Params& params);
  Cost (*cost)(const Params& params);
};

[[nodiscard]] std::span<const Algorithm> algorithms();
// Throws UsageError naming the legal names for this operation.
[[nodiscard]] const Algorithm& find_algorithm(Collective op, std::string_view name);
// Generates for the given parameters; throws UsageError when refused. keep as in Builder.
[[nodiscard]] Schedule generate(const Algorithm& algorithm, const Params& params,
                                std::optional<int> keep = std::nullopt);

}  // namespace sinew::sched
