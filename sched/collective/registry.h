// The table of collective algorithms: the one place where they are listed. Tests, verifier,
// simulator, executor, benchmarks, command line and README loop over it. Adding one: a file
// collective/NAME.cc with its generator, closed form and row, and that row's name in algorithms.h
// and registry.cc.
//
// Rows with a radix are families: NAME takes the radix that is usual for it, NAME_r any other, as
// bruck_3. The loops see a few of them; all can be named.
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
inline constexpr int kMaxRadix = 256;  // the least is 2

struct Params {
  int world = 1;
  int root = 0;
  int segments = 1;  // k of rows that are segmented: pieces in which the vector travels; else 1
  int group = 0;     // of rows with levels: ranks per group, neighbours in number; 0: the row's own
  int radix = 0;     // of rows with a radix; Algorithm sets it
};

struct Algorithm {
  Collective op;
  std::string_view name;     // as on the command line
  std::string_view formula;  // the closed form, for people
  std::string_view source;   // paper or textbook
  void (*generator)(const Params& params, Builder& builder);
  int (*chunks_of)(const Params& params);
  std::string (*rule)(const Params& params);
  Cost (*closed_form)(const Params& params);
  bool segmented = false;  // honours Params::segments
  int slack = 0;
  int radix = 0;              // r of the formula; 0: the row has none
  std::string_view family{};  // the row of which this one is another radix; empty: none

  void generate(const Params& params, Builder& builder) const { generator(own(params), builder); }
  [[nodiscard]] int chunks_per_block(const Params& params) const { return chunks_of(own(params)); }
  // Empty when the parameters are legal, else the rule and the legal values in one line.
  [[nodiscard]] std::string refuse(const Params& params) const { return rule(own(params)); }
  // Closed form: what verify counts on the schedule, or at most `slack` messages of each kind more.
  [[nodiscard]] Cost cost(const Params& params) const { return closed_form(own(params)); }
  // The parameters with the row's radix.
  [[nodiscard]] Params own(Params params) const {
    params.radix = radix;
    return params;
  }
};

// Empty when the counted cost of the row's schedule agrees with its closed form (up to the rounding
// of a division), else one line with both.
[[nodiscard]] std::string cost_difference(const Algorithm& algorithm, const Params& params,
                                          const Cost& counted);

[[nodiscard]] std::span<const Algorithm> algorithms();
// The same, followed by the families' rows of every other radix from 2 to kMaxRadix.
[[nodiscard]] std::span<const Algorithm> every_algorithm();
// Null when every_algorithm() has no such row.
[[nodiscard]] const Algorithm* known_algorithm(Collective op, std::string_view name);
// Throws UsageError naming the legal names for this operation.
[[nodiscard]] const Algorithm& find_algorithm(Collective op, std::string_view name);
// Of a row of every_algorithm(): its place there.
[[nodiscard]] std::size_t index_of(const Algorithm& row);
// What a name in an error may look like: "bruck" and, for families, "bruck_R"; empty for a row of
// another radix, which its family stands for.
[[nodiscard]] std::string legal_forms(const Algorithm& row);
// What is said once after such names: which R there are.
[[nodiscard]] std::string legal_radices();
// The number of segments for which the row's closed form is least for a vector of full_bytes, to
// within a few per cent; 1 for rows that are not segmented.
[[nodiscard]] int best_segments(const Algorithm& algorithm, Params params, const Prices& prices,
                                std::int64_t full_bytes);
// Generates for the given parameters; throws UsageError when refused. keep as in Builder.
[[nodiscard]] Schedule generate(const Algorithm& algorithm, const Params& params,
                                std::optional<int> keep = std::nullopt);

}  // namespace sinew::sched
