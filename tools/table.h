// Table: columns of text for people, printed row by row so that long measurements show progress.
//
// Threads: one object, one thread. Cells wider than their column push the rest of the row right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::tools {

struct Column {
  std::string name;
  int width = 8;      // at least; the name widens it
  bool left = false;  // text to the left, numbers to the right
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);
  [[nodiscard]] std::string header() const;  // names and a rule, two lines
  [[nodiscard]] std::string row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

// A number with three significant digits and no exponent: "0.123", "12.3", "1234".
[[nodiscard]] std::string three_digits(double value);

}  // namespace sinew::tools
