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

  Impl(std::string command_name, const std::string& summary)
      : command(std::move(command_name)), app(summary, "sinew " + command) {
    app.option_defaults()->take_last();
  }

  // All values arrive as text, so that every refusal is worded here and not by the parser.
  void add(const std::string& name, const std::string& type, const std::string& shown_default,
           const std::string& help, const std::function<void(const std::string&)>& assign) {
    names.push_back(name);
    app.add_option_function<std::string>(name, assign, help)
        ->type_name(type)
        ->default_str(shown_default)
        ->run_callback_for_default(false);
  }
};

namespace {

// The legal name nearest to what was typed, when it is near enough to be a slip.
std::string nearest(const std::string& typed, const std::vector<std::string>& names) {
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

template <typename Number, typename Range>
void check_range(const std::string& name, Number value, const Range& range) {
  if (value >= range.min && value <= range.max) return;
  const bool open = range.max == Range{}.max;
  throw UsageError(
      open ? fmt::format("{} {} is too small: it must be at least {}", name, value, range.min)
           : fmt::format("{} {} is out of range: it must be from {} to {}", name, value, range.min,
                         range.max));
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
  impl_->add(name, "INT", fmt::format("{}", value), help,
             [&value, name, range](const std::string& text) {
               value = parse_int(text, name);
               check_range(name, value, range);
             });
}

void Args::option(const std::string& name, int& value, const std::string& help, IntRange range) {
  range.min = std::max<std::int64_t>(range.min, std::numeric_limits<int>::min());
  const bool open = range.max > std::numeric_limits<int>::max();
  impl_->add(name, "INT", fmt::format("{}", value), help,
             [&value, name, range, open](const std::string& text) {
               const std::int64_t wide = parse_int(text, name);
               check_range(name, wide, range);
               if (open) {
                 check_range(name, wide, IntRange{range.min, std::numeric_limits<int>::max()});
               }
               value = static_cast<int>(wide);
             });
}

void Args::option(const std::string& name, double& value, const std::string& help,
                  DoubleRange range) {
  impl_->add(name, "NUMBER", fmt::format("{}", value), help,
             [&value, name, range](const std::string& text) {
               value = parse_double(text, name);
               check_range(name, value, range);
             });
}

void Args::option(const std::string& name, std::uint64_t& value, const std::string& help) {
  impl_->add(name, "INT", fmt::format("{}", value), help, [&value, name](const std::string& text) {
    const std::int64_t number = parse_int(text, name);
    check_range(name, number, IntRange{.min = 0});
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
  return true;
}

std::string Args::help() const { return impl_->app.help(); }

}  // namespace sinew::tools
