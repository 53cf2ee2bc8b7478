#include "tools/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <utility>

#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew::tools {

struct Args::Impl {
  std::string command;
  CLI::App app;
  std::vector<std::string> names;
  std::vector<Shown> shown;
  std::vector<std::function<void()>> rules;  // of options beside each other

  Impl(std::string command_name, const std::string& summary)
      : command(std::move(command_name)), app(summary, "sinew " + command) {
    app.option_defaults()->take_last();
  }

  // All values arrive as text, so that every refusal is worded here and not by the parser.
  void add(const std::string& name, const std::string& type, const std::string& shown_default,
           const std::string& help, const std::function<void(const std::string&)>& assign) {
    names.push_back(name);
    shown.push_back({name, shown_default});
    app.add_option_function<std::string>(name, assign, help)
        ->type_name(type)
        ->default_str(shown_default)
        ->run_callback_for_default(false);
  }
};

namespace {

// The legal name that what was typed begins, or the nearest one that is near enough to be a slip.
std::string nearest(const std::string& typed, const std::vector<std::string>& names) {
  const auto longer = std::ranges::find_if(
      names, [&](const std::string& name) { return typed.size() > 3 && name.starts_with(typed); });
  if (longer != names.end()) return *longer;
  const auto distance = [&](const std::string& name) {
    std::vector<std::size_t> row(name.size() + 1);
    for (std::size_t j = 0; j <= name.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= typed.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i);
      for (std::size_t j = 1; j <= name.size(); ++j) {
        const std::size_t replaced = diagonal + (typed[i - 1] == name[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    return row.back();
  };
  const auto best = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(a) < distance(b);
  });
  return best != names.end() && distance(*best) <= 2 ? *best : std::string();
}

// "from 1 to 64" or "at least 1"; empty where every number is legal.
template <typename Range>
std::string words_of(const Range& range) {
  if (range.max != Range{}.max) return fmt::format("from {} to {}", range.min, range.max);
  return range.min == Range{}.min ? "" : fmt::format("at least {}", range.min);
}

template <typename Number, typename Range>
void check_range(const std::string& name, Number value, const Range& range) {
  if (value >= range.min && value <= range.max) return;
  throw UsageError(fmt::format("{} {} is {}: it must be {}", name, value,
                               range.max == Range{}.max ? "too small" : "out of range",
                               words_of(range)));
}

// What is no number at all is told the range as well.
template <typename Parse, typename Range>
auto parse_number(const Parse& parse, const std::string& text, const std::string& name,
                  const Range& range) {
  try {
    return parse(text, name);
  } catch (const UsageError& error) {
    const std::string words = words_of(range);
    throw UsageError(words.empty() ? error.what()
                                   : fmt::format("{}: it must be {}", error.what(), words));
  }
}

template <typename Range>
std::string help_with(const std::string& help, const Range& range) {
  // A count need not be told that it is not negative.
  const bool plain = range.min == 0 && range.max == Range{}.max;
  const std::string words = plain ? "" : words_of(range);
  return words.empty() ? help : fmt::format("{} ({})", help, words);
}

}  // namespace

Args::Args(std::string command, const std::string& summary)
    : impl_(std::make_unique<Impl>(std::move(command), summary)) {}

Args::~Args() = default;

void Args::option(const std::string& name, std::string& value, const std::string& help) {
  impl_->add(name, "TEXT", value, help, [this, &value, name](const std::string& text) {
    // An empty text is what a script passes for a variable that was never set.
    if (text.empty()) {
      throw UsageError(fmt::format("{}: {} needs a value and '' was given", impl_->command, name));
    }
    value = text;
  });
}

void Args::option(const std::string& name, std::int64_t& value, const std::string& help,
                  IntRange range) {
  impl_->add(name, "INT", fmt::format("{}", value), help_with(help, range),
             [&value, name, range](const std::string& text) {
               value = parse_number(parse_int, text, name, range);
               check_range(name, value, range);
             });
}

void Args::option(const std::string& name, int& value, const std::string& help, IntRange range) {
  range.min = std::max<std::int64_t>(range.min, std::numeric_limits<int>::min());
  const bool open = range.max > std::numeric_limits<int>::max();
  impl_->add(name, "INT", fmt::format("{}", value), help_with(help, range),
             [&value, name, range, open](const std::string& text) {
               const std::int64_t wide = parse_number(parse_int, text, name, range);
               check_range(name, wide, range);
               if (open) {
                 check_range(name, wide, IntRange{range.min, std::numeric_limits<int>::max()});
               }
               value = static_cast<int>(wide);
             });
}

void Args::option(const std::string& name, double& value, const std::string& help,
                  DoubleRange range) {
  impl_->add(name, "NUMBER", fmt::format("{}", value), help_with(help, range),
             [&value, name, range](const std::string& text) {
               value = parse_number(parse_double, text, name, range);
               check_range(name, value, range);
             });
}

void Args::option(const std::string& name, std::uint64_t& value, const std::string& help) {
  static constexpr IntRange kRange = {.min = 0};
  impl_->add(name, "INT", fmt::format("{}", value), help, [&value, name](const std::string& text) {
    const std::int64_t number = parse_number(parse_int, text, name, kRange);
    check_range(name, number, kRange);
    value = static_cast<std::uint64_t>(number);
  });
}

void Args::flag(const std::string& name, bool& value, const std::string& help) {
  impl_->names.push_back(name);
  impl_->app.add_flag_callback(
      name, [&value] { value = true; }, help);
}

void Args::choice(const std::string& name, std::string& value, std::vector<std::string> legal,
                  const std::string& help) {
  const std::string list = join(legal, ", ");
  impl_->add(
      name, "NAME", value, help + ": " + list,
      [&value, name, legal = std::move(legal), list](const std::string& text) {
        if (std::find(legal.begin(), legal.end(), text) == legal.end()) {
          throw UsageError(fmt::format("{} '{}' is unknown: legal are {}", name, text, list));
        }
        value = text;
      });
}

void Args::exclude(const std::string& name, std::vector<std::string> others, std::string reason) {
  impl_->rules.emplace_back([this, name, others = std::move(others), reason = std::move(reason)] {
    if (given(name)) refuse_given(others, fmt::format("beside {}: {}", name, reason));
  });
}

void Args::need(const std::string& name, std::string needed) {
  impl_->rules.emplace_back([this, name, needed = std::move(needed)] {
    if (!given(needed)) refuse_given({name}, fmt::format("without {}", needed));
  });
}

bool Args::given(const std::string& name) const { return impl_->app.count(name) > 0; }

void Args::refuse_given(const std::vector<std::string>& names, const std::string& reason) const {
  for (const std::string& name : names) {
    if (given(name))
      throw UsageError(fmt::format("{}: {} has no effect {}", impl_->command, name, reason));
  }
}

std::vector<Args::Given> Args::all_given() const {
  std::vector<Given> all;
  for (const std::string& name : impl_->names)
    all.push_back({name, given(name) ? join(impl_->app.get_option(name)->results(), " ") : ""});
  return all;
}

const std::vector<Args::Shown>& Args::shown() const { return impl_->shown; }

bool Args::parse(std::span<const std::string> arguments) {
  // The parser takes its arguments in reverse order.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    impl_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = impl_->app.remaining();
    const std::string first = extras.empty() ? std::string("?") : extras.front();
    const std::string near = nearest(first, impl_->names);
    throw UsageError(fmt::format("{} does not know '{}'{}: legal are {}", impl_->command, first,
                                 near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
                                 join(impl_->names, " ")));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    throw UsageError(
        fmt::format("{}: {} needs a value", impl_->command, text.substr(0, text.find(':'))));
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    throw UsageError(fmt::format("{}: {}", impl_->command, line));
  }
  for (const std::function<void()>& rule : impl_->rules) rule();
  return true;
}

std::string Args::help() const { return impl_->app.help(); }

}  // namespace sinew::tools
