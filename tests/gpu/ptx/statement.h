// PTX text, taken apart: entries of a file, and the statements of one entry with their operands.
//
// Knows what nvcc writes for this project's kernels and refuses the rest by name: functions that
// are called, tables of branches, constant and managed memory. Throws Error that names file and
// line.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/function.h"

namespace sinew::ptx {

struct Operand {
  enum class Kind : std::uint8_t { kSlot, kAddress, kVector, kNothing };
  Kind kind = Kind::kNothing;
  int slot = -1;
  int second = -1;  // of a pair r|p
  std::int64_t offset = 0;
  std::vector<Operand> parts;  // of a vector; of an address with coordinates
};

struct Statement {
  std::string opcode;
  std::vector<Operand> operands;
  std::string target;  // of a branch
  int guard = -1;
  bool guard_negated = false;
  int line = 0;
};

// Statements of one entry; labels name the statement that follows them.
struct Body {
  std::vector<Statement> statements;
  std::map<std::string, int> labels;
};

// One file: where each entry lies, and what shared memory all of them may name.
class Source {
 public:
  Source(std::string file, std::string text);
  [[nodiscard]] std::vector<std::string> entries() const;
  // 80 of sm_80, 90 of sm_90a.
  [[nodiscard]] int target() const { return target_; }
  // function gets the name, parameters, variables and slots; the body's statements refer to them.
  [[nodiscard]] Body parse(const std::string& entry, Function& function) const;

 private:
  struct Place {
    std::size_t begin;
    int line;
  };
  std::string file_;
  std::string text_;
  std::map<std::string, Place> entries_;
  std::vector<Variable> shared_;
  std::string dynamic_shared_;
  int target_ = 0;
};

}  // namespace sinew::ptx
