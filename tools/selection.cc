#include "tools/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "comm/selection_file.h"
#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew::tools {
namespace {

bool named(const std::string& list, std::string_view name) {
  const std::vector<std::string_view> names = split(list, ',');
  return list == "all" || std::find(names.begin(), names.end(), name) != names.end();
}

void check_ops(const std::string& ops) {
  if (ops == "all") return;
  std::vector<std::string> legal = {"all"};
  for (const sched::Collective op : known_collectives()) legal.emplace_back(sched::name_of(op));
  legal.emplace_back(kPipelineOp);
  for (const std::string_view name : split(ops, ',')) {
    if (std::find(legal.begin(), legal.end(), name) == legal.end()) {
      throw UsageError(fmt::format("--op '{}' is unknown: legal are {}", name, join(legal, ", ")));
    }
  }
}

// Each name must be a row of one of the operations.
void check_algorithms(const std::string& ops, const std::string& algorithms) {
  if (algorithms == "all") return;
  std::vector<std::string> legal = {"all"};
  const auto add = [&legal](std::string_view name) {
    if (std::find(legal.begin(), legal.end(), name) == legal.end()) legal.emplace_back(name);
  };
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (named(ops, sched::name_of(row.op))) add(row.name);
  }
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms()) {
    if (named(ops, kPipelineOp)) add(row.name);
  }
  for (const std::string_view name : split(algorithms, ',')) {
    if (std::find(legal.begin(), legal.end(), name) == legal.end()) {
      throw UsageError(fmt::format("--algo '{}' is unknown for --op {}: legal are {}", name, ops,
                                   join(legal, ", ")));
    }
  }
}

}  // namespace

Selection select(const std::string& ops, const std::string& algorithms) {
  check_ops(ops);
  check_algorithms(ops, algorithms);
  Selection selection;
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (named(ops, sched::name_of(row.op)) && named(algorithms, row.name))
      selection.collectives.push_back(&row);
  }
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms()) {
    if (named(ops, kPipelineOp) && named(algorithms, row.name)) selection.pipelines.push_back(&row);
  }
  return selection;
}

std::vector<sched::Collective> known_collectives() {
  std::vector<sched::Collective> ops;
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (std::find(ops.begin(), ops.end(), row.op) == ops.end()) ops.push_back(row.op);
  }
  return ops;
}

void use_selection(const std::string& path) {
  if (!path.empty()) setenv(comm::kSelectionVariable, path.c_str(), 1);
}

std::vector<int> parse_worlds(const std::string& text, int max) {
  std::vector<int> worlds;
  for (const std::string_view part : split(text, ',')) {
    const std::vector<std::string_view> ends = split(part, ':');
    const std::int64_t first = parse_int(ends.front(), "--world");
    const std::int64_t last = parse_int(ends.back(), "--world");
    if (ends.size() > 2 || first < 1 || last < first || last > max) {
      throw UsageError(fmt::format(
          "--world '{}' is not a number of ranks: legal are 1 to {}, or a range such as "
          "1:16, or such joined by commas",
          part, max));
    }
    for (std::int64_t world = first; world <= last; ++world)
      worlds.push_back(static_cast<int>(world));
  }
  return worlds;
}

sched::PipeTimes parse_times(const std::string& text) {
  sched::PipeTimes times;
  const std::array<double*, 4> fields = {&times.forward, &times.backward, &times.weight,
                                         &times.transfer};
  const std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() > fields.size() || parts.size() < 3) {
    throw UsageError(
        fmt::format("--times '{}' has {} numbers: give forward,backward,weight or "
                    "forward,backward,weight,transfer",
                    text, parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    *fields[i] = parse_double(parts[i], "--times");
    if (*fields[i] < 0 || *fields[i] > 1e9) {
      throw UsageError(
          fmt::format("--times '{}' is out of range: each is from 0 to 1e9", parts[i]));
    }
  }
  if (times.forward + times.backward + times.weight <= 0) {
    throw UsageError(fmt::format("--times '{}' leaves no computation: one must be above 0", text));
  }
  return times;
}

}  // namespace sinew::tools
