// The table of collective algorithms: the one place where they are listed. Tests, verifier,
// simulator, executor, benchmarks, command line and README loop over it. Adding one: a file
// collective/NAME.cc with its generator, closed form and row, and that row's name in algorithms.h
// and registry.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sched/builder.h"
#include "sched/cost.h"
#include "sched/schedule.h"

namespace sinew::sched {

inline constexpr int kMaxSegments = 1 << 20;

struct Params {
  int world = 1;
  int root = 0;
  int segments = 1;  // k of rows that are segmented: pieces in which the vector travels; else 1
  int group = 0;     // of rows with levels: ranks per group, neighbours in number; 0: the row's own
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
  // Closed form: what verify counts on the schedule, or at most `slack` messages of each kind more.
  Cost (*cost)(const Params& params);
  bool segmented = false;  // honours Params::segments
  int slack = 0;
};

// Empty when the counted cost of the row's schedule agrees with its closed form (up to the rounding
// of a division), else one line with both.
[[nodiscard]] std::string cost_difference(const Algorithm& algorithm, const Params& params,
                                          const Cost& counted);

[[nodiscard]] std::span<const Algorithm> algorithms();
// Throws UsageError naming the legal names for this operation.
[[nodiscard]] const Algorithm& find_algorithm(Collective op, std::string_view name);
// The number of segments for which the row's closed form is least for a vector of full_bytes, to
// within a few per cent; 1 for rows that are not segmented.
[[nodiscard]] int best_segments(const Algorithm& algorithm, Params params, const Prices& prices,
                                std::int64_t full_bytes);
// Generates for the given parameters; throws UsageError when refused. keep as in Builder.
[[nodiscard]] Schedule generate(const Algorithm& algorithm, const Params& params,
                                std::optional<int> keep = std::nullopt);

}  // namespace sinew::sched
