#include "tools/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "comm/selection_file.h"
#include "sched/base/dtype.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "tools/files.h"

namespace sinew::tools {
namespace {

std::vector<std::string_view> names_in(const std::string& list) {
  std::vector<std::string_view> names = split(list, ',');
  for (std::string_view& name : names) name = trim(name);
  return names;
}

bool named(const std::string& list, std::string_view name) {
  const std::vector<std::string_view> names = names_in(list);
  return std::ranges::any_of(names,
                             [&](std::string_view one) { return one == name || one == "all"; });
}

void check_ops(const std::string& ops) {
  if (ops == "all") return;
  std::vector<std::string> legal = {"all"};
  for (const sched::Collective op : known_collectives()) legal.emplace_back(sched::name_of(op));
  legal.emplace_back(kPipelineOp);
  for (const std::string_view name : names_in(ops)) {
    if (std::find(legal.begin(), legal.end(), name) == legal.end()) {
      throw UsageError(fmt::format("--op '{}' is unknown: legal are {}", name, join(legal, ", ")));
    }
  }
}

// Of collectives, also those of a radix that the table does not list.
std::vector<const sched::Algorithm*> rows_named(const std::string& ops, std::string_view name) {
  std::vector<const sched::Algorithm*> rows;
  for (const sched::Collective op : known_collectives()) {
    const sched::Algorithm* const row =
        named(ops, sched::name_of(op)) ? sched::known_algorithm(op, name) : nullptr;
    if (row != nullptr) rows.push_back(row);
  }
  return rows;
}

// Each name must be a row of one of the operations.
void check_algorithms(const std::string& ops, const std::string& algorithms) {
  if (algorithms == "all") return;
  std::vector<std::string> legal = {"all"};
  const auto add = [&legal](std::string_view name) {
    if (std::find(legal.begin(), legal.end(), name) == legal.end()) legal.emplace_back(name);
  };
  bool has_families = false;
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (!named(ops, sched::name_of(row.op)) || !row.family.empty()) continue;
    add(sched::legal_forms(row));
    has_families |= row.radix != 0;
  }
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms()) {
    if (named(ops, kPipelineOp)) add(row.name);
  }
  for (const std::string_view name : names_in(algorithms)) {
    if (std::find(legal.begin(), legal.end(), name) != legal.end()) continue;
    if (!rows_named(ops, name).empty()) continue;
    throw UsageError(fmt::format("--algo '{}' is unknown for --op {}: legal are {}{}", name, ops,
                                 join(legal, ", "), has_families ? sched::legal_radices() : ""));
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
  for (const std::string_view name : names_in(algorithms)) {
    for (const sched::Algorithm* const row : rows_named(ops, name)) {
      if (std::ranges::find(selection.collectives, row) == selection.collectives.end())
        selection.collectives.push_back(row);
    }
  }
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms()) {
    if (named(ops, kPipelineOp) && named(algorithms, row.name)) selection.pipelines.push_back(&row);
  }
  return selection;
}

Selection keep_existing(const Selection& selection, const std::string& where,
                        const std::function<bool(const sched::Algorithm&)>& collective_exists,
                        const std::function<bool(const sched::PipeAlgorithm&)>& pipeline_exists) {
  if (selection.size() == 1) return selection;
  Selection kept;
  for (const sched::Algorithm* row : selection.collectives) {
    if (collective_exists(*row)) {
      kept.collectives.push_back(row);
    } else {
      kept.missing.push_back(fmt::format("{} {}", sched::name_of(row->op), row->name));
    }
  }
  for (const sched::PipeAlgorithm* row : selection.pipelines) {
    if (pipeline_exists(*row)) {
      kept.pipelines.push_back(row);
    } else {
      kept.missing.push_back(fmt::format("{} {}", kPipelineOp, row->name));
    }
  }
  if (kept.size() == 0) {
    throw UsageError(fmt::format("none of {} exists for {}: name one alone to see its rule",
                                 join(kept.missing, ", "), where));
  }
  return kept;
}

std::string missing_line(const Selection& selection, const std::string& where) {
  if (selection.missing.empty()) return {};
  return fmt::format("left out, since not for {}: {}\n", where, join(selection.missing, ", "));
}

void refuse_unused(const Args& args, bool collectives,
                   const std::vector<std::string>& of_collectives, bool pipelines,
                   const std::vector<std::string>& of_pipelines) {
  if (!collectives) args.refuse_given(of_collectives, "on a pipeline: it is of collectives");
  if (!pipelines) args.refuse_given(of_pipelines, "on a collective: it is of --op pipeline");
}

void refuse_root(const Args& args, const std::vector<const sched::Algorithm*>& collectives) {
  const bool rooted = std::ranges::any_of(collectives, [](const sched::Algorithm* row) {
    return sched::Contract{.op = row->op}.rooted();
  });
  if (!rooted) args.refuse_given({"--root"}, "here: of broadcast, reduce, gather and scatter");
}

void require_root(int root, int world) {
  if (root >= 0 && root < world) return;
  throw UsageError(fmt::format("--root {} is no rank: it must be from 0 to {}", root, world - 1));
}

int chunks_of(const sched::PipeAlgorithm& row, int asked) {
  return asked > 0 ? asked : row.default_chunks;
}

std::string dtype_names() {
  std::vector<std::string> names;
  for (const DTypeInfo& row : kDTypes) names.emplace_back(row.name);
  return join(names, ", ");
}

std::string reduce_names() {
  std::vector<std::string> names;
  for (const ReduceOpInfo& row : kReduceOps) names.emplace_back(row.name);
  return join(names, ", ");
}

int longest_name() {
  std::size_t longest = 0;
  for (const sched::Algorithm& row : sched::algorithms())
    longest = std::max(longest, row.name.size());
  for (const sched::PipeAlgorithm& row : sched::pipe_algorithms())
    longest = std::max(longest, row.name.size());
  return static_cast<int>(longest);
}

std::vector<sched::Collective> known_collectives() {
  std::vector<sched::Collective> ops;
  for (const sched::Algorithm& row : sched::algorithms()) {
    if (std::find(ops.begin(), ops.end(), row.op) == ops.end()) ops.push_back(row.op);
  }
  return ops;
}

std::vector<sched::Collective> parse_collectives(const std::string& text) {
  std::vector<sched::Collective> known = known_collectives();
  std::vector<sched::Collective> ops;
  for (const std::string_view name : names_in(text)) {
    if (name == "all") return known;
    const auto op = std::ranges::find(known, name, [](auto one) { return sched::name_of(one); });
    if (op == known.end()) {
      std::vector<std::string> legal = {"all"};
      for (const sched::Collective one : known) legal.emplace_back(sched::name_of(one));
      throw UsageError(fmt::format("--op '{}' is unknown: legal are {}", name, join(legal, ", ")));
    }
    if (std::ranges::find(ops, *op) == ops.end()) ops.push_back(*op);
  }
  return ops;
}

void use_selection(const std::string& path) {
  if (path.empty()) return;
  static_cast<void>(read_text("--selection", path));
  setenv(comm::kSelectionVariable, path.c_str(), 1);
}

std::vector<int> parse_worlds(const std::string& text, int max) {
  std::set<int> worlds;
  for (const std::string_view part : split(text, ',')) {
    const std::vector<std::string_view> ends = split(part, ':');
    const auto is_number = [](std::string_view end) {
      return !end.empty() && end.find_first_not_of("0123456789") == std::string_view::npos;
    };
    const bool numbers = ends.size() <= 2 && std::ranges::all_of(ends, is_number);
    const std::int64_t first = numbers ? parse_int(ends.front(), "--world") : 0;
    const std::int64_t last = numbers ? parse_int(ends.back(), "--world") : 0;
    if (first < 1 || last < first || last > max) {
      throw UsageError(fmt::format(
          "--world '{}' is not a number of ranks: legal are 1 to {}, or a range such as "
          "1:16, or such joined by commas",
          part, max));
    }
    for (std::int64_t world = first; world <= last; ++world) worlds.insert(static_cast<int>(world));
  }
  return {worlds.begin(), worlds.end()};
}

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  return in_option("--bytes", [&] { return parse_byte_range(text); });
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

JsonRecord record_of(std::string_view op, std::string_view algorithm, int ranks) {
  return JsonRecord().add("op", op).add("algo", algorithm).add("ranks", ranks);
}

JsonRecord record_of(const sched::PipeSchedule& schedule, const sched::PipeSimulation& simulation,
                     std::optional<double> closed_form_bubble) {
  return record_of(kPipelineOp, schedule.name, schedule.ranks)
      .add("chunks", schedule.chunks)
      .add("microbatches", schedule.microbatches)
      .add("makespan", simulation.makespan)
      .add("ideal", simulation.ideal)
      .add("bubble", simulation.bubble)
      .add("closed_form_bubble", closed_form_bubble);
}

}  // namespace sinew::tools
