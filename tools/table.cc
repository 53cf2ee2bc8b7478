#include "tools/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sched/base/check.h"

namespace sinew::tools {

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_)
    column.width = std::max(column.width, static_cast<int>(column.name.size()));
}

std::string Table::header() const {
  std::vector<std::string> names;
  std::size_t total = 0;
  for (const Column& column : columns_) {
    names.push_back(column.name);
    total += static_cast<std::size_t>(column.width) + 2;
  }
  return row(names) + std::string(total - 2, '-') + "\n";
}

std::string Table::row(const std::vector<std::string>& cells) const {
  CHECK_EQ(cells.size(), columns_.size());
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    line += columns_[i].left ? fmt::format("{:<{}}", cells[i], columns_[i].width)
                             : fmt::format("{:>{}}", cells[i], columns_[i].width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string three_digits(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::fabs(value);
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size == 0 ? 0 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace sinew::tools
