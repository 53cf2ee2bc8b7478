// Args: the options of one subcommand. Each option is bound to a variable that holds its default;
// parsing fills the variables or throws UsageError in one line that names the value, the rule and
// the legal values.
//
// Never does: print, exit, or know what an option means.
// Threads: one object, one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sched/base/error.h"

namespace sinew::tools {

// What `parse` returns; a UsageError of it is told the option whose value it speaks of.
template <typename Parse>
auto in_option(const std::string& option, Parse&& parse) {
  try {
    return parse();
  } catch (const UsageError& error) {
    throw UsageError(option + ": " + error.what());
  }
}

struct IntRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

struct DoubleRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};

class Args {
 public:
  Args(std::string command, const std::string& summary);
  ~Args();
  Args(const Args&) = delete;
  Args& operator=(const Args&) = delete;

  // `name` includes its dashes. The bound variables must outlive parse().
  void option(const std::string& name, std::string& value, const std::string& help);
  void option(const std::string& name, std::int64_t& value, const std::string& help,
              IntRange range = {});
  void option(const std::string& name, int& value, const std::string& help, IntRange range = {});
  void option(const std::string& name, double& value, const std::string& help,
              DoubleRange range = {});
  void option(const std::string& name, std::uint64_t& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  // Legal values in words; anything else is refused with the list.
  void choice(const std::string& name, std::string& value, std::vector<std::string> legal,
              const std::string& help);

  // Options that were given together with one that leaves them without effect are refused; what
  // follows is said after both names.
  void exclude(const std::string& name, std::vector<std::string> others, std::string reason);
  // `name` has no effect without `needed`.
  void need(const std::string& name, std::string needed);

  // The arguments after the subcommand. Returns false when help was asked for: then help() is what
  // to print.
  [[nodiscard]] bool parse(std::span<const std::string> arguments);
  [[nodiscard]] std::string help() const;
  // After parse(): whether the option was given.
  [[nodiscard]] bool given(const std::string& name) const;
  // Throws UsageError naming the first of `names` that was given: it has no effect here, and
  // `reason` says why.
  void refuse_given(const std::vector<std::string>& names, const std::string& reason) const;

  // After parse(), for every option and flag in the order they were declared: its name and what was
  // given, empty where it was not.
  struct Given {
    std::string name;
    std::string text;
  };
  [[nodiscard]] std::vector<Given> all_given() const;

  // An option as help() shows it; a flag has no value.
  struct Shown {
    std::string name;
    std::string value;
  };
  [[nodiscard]] const std::vector<Shown>& shown() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sinew::tools
