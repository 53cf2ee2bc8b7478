#include "comm/selection_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "comm/select.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/collective/registry.h"

namespace sinew::comm {
namespace {

constexpr int kWorldMost = 1 << 20;
constexpr std::string_view kAny = "any";

sched::Collective parse_op(std::string_view name) {
  std::vector<std::string> legal;
  for (const sched::Algorithm& row : sched::algorithms()) {
    const std::string known(sched::name_of(row.op));
    if (known == name) return row.op;
    if (std::find(legal.begin(), legal.end(), known) == legal.end()) legal.push_back(known);
  }
  throw UsageError(
      fmt::format("operation '{}' is unknown; legal values: {}", name, join(legal, ", ")));
}

std::string reason_of(const SelectionFile::Row& row) {
  return fmt::format("measured fastest for {} ranks{} {}", row.world,
                     row.transport.empty() ? "" : " over " + row.transport,
                     row.most_bytes == SelectionFile::kAnyBytes
                         ? "and the largest sizes"
                         : "up to " + format_bytes(row.most_bytes));
}

SelectionFile::Row parse_row(const std::vector<std::string_view>& words) {
  if (words.size() != 4 && words.size() != 5) {
    throw UsageError(
        fmt::format("{} fields; a row is: operation ranks bytes algorithm [transport], as in "
                    "all_reduce 2 2048 one_shot shm",
                    words.size()));
  }
  SelectionFile::Row row;
  row.op = parse_op(words[0]);
  const std::int64_t world = parse_int(words[1], "ranks");
  if (world < 1 || world > kWorldMost)
    throw UsageError(fmt::format("ranks {}; legal values: 1 to {}", world, kWorldMost));
  row.world = static_cast<int>(world);
  row.most_bytes = words[2] == kAny ? SelectionFile::kAnyBytes : parse_bytes(words[2]);
  row.algorithm = words[3];
  if (words.size() == 5) row.transport = words[4];
  (void)algorithm_index(row.op, row.algorithm, row.world, 0);
  row.reason = reason_of(row);
  return row;
}

bool same_place(const SelectionFile::Row& a, const SelectionFile::Row& b) {
  return a.op == b.op && a.world == b.world && a.transport == b.transport;
}

// `row` must go on where the rows of its operation and world ended.
void check_order(std::span<const SelectionFile::Row> rows, const SelectionFile::Row& row) {
  for (const SelectionFile::Row& before : rows) {
    if (!same_place(before, row) || before.most_bytes < row.most_bytes) continue;
    throw UsageError(fmt::format("rows of {} with {} ranks must stand by rising bytes, any last",
                                 sched::name_of(row.op), row.world));
  }
}

void check_ends(std::span<const SelectionFile::Row> rows) {
  for (const SelectionFile::Row& row : rows) {
    const bool ends = std::any_of(rows.begin(), rows.end(), [&](const SelectionFile::Row& other) {
      return same_place(row, other) && other.most_bytes == SelectionFile::kAnyBytes;
    });
    if (!ends) {
      throw UsageError(fmt::format("the last row of {} with {} ranks must have '{}' bytes",
                                   sched::name_of(row.op), row.world, kAny));
    }
  }
}

SelectionFile read_file(const char* path) {
  if (path == nullptr || *path == '\0') return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (std::filesystem::is_directory(path) || !file || !(text << file.rdbuf())) {
    throw UsageError(fmt::format(
        "selection '{}' cannot be read: name a file that `sinew tune` wrote, or unset {}", path,
        kSelectionVariable));
  }
  return {text.str(), fmt::format("selection '{}'", path)};
}

}  // namespace

SelectionFile::SelectionFile(std::string_view text, const std::string& where) {
  int number = 0;
  for (const std::string_view line : text_lines(text)) {
    ++number;
    const std::vector<std::string_view> words = fields(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    try {
      Row row = parse_row(words);
      check_order(rows_, row);
      rows_.push_back(std::move(row));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{} line {}: {}", where, number, error.what()));
    }
  }
  try {
    check_ends(rows_);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  }
}

std::vector<const SelectionFile::Row*> SelectionFile::rows_for(int world,
                                                               std::string_view transport) const {
  std::vector<const Row*> found;
  for (const Row& row : rows_) {
    if (row.world != world || (!row.transport.empty() && row.transport != transport)) continue;
    const bool named = std::any_of(rows_.begin(), rows_.end(), [&](const Row& other) {
      return other.op == row.op && other.world == world && other.transport == transport;
    });
    if (named && row.transport.empty() && !transport.empty()) continue;
    found.push_back(&row);
  }
  return found;
}

const SelectionFile::Row* SelectionFile::find(sched::Collective op, std::int64_t bytes, int world,
                                              std::string_view transport) const {
  for (const Row* row : rows_for(world, transport)) {
    if (row->op == op && bytes <= row->most_bytes) return row;
  }
  return nullptr;
}

void SelectionFile::replace(std::span<const Row> rows) {
  if (rows.empty()) return;
  std::erase_if(rows_, [&](const Row& row) { return same_place(row, rows.front()); });
  for (const Row& row : rows) {
    rows_.push_back(row);
    rows_.back().reason = reason_of(row);
  }
}

std::string SelectionFile::print() const {
  std::string text =
      "# operation ranks bytes algorithm transport: the fastest as measured by sinew tune\n";
  for (const Row& row : rows_) {
    text += fmt::format(
        "{} {} {} {}{}\n", sched::name_of(row.op), row.world,
        row.most_bytes == kAnyBytes ? std::string(kAny) : fmt::format("{}", row.most_bytes),
        row.algorithm, row.transport.empty() ? "" : " " + row.transport);
  }
  return text;
}

const SelectionFile& selection_file() {
  static const SelectionFile file = read_file(std::getenv(kSelectionVariable));
  return file;
}

}  // namespace sinew::comm
