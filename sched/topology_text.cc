// The text form of a Topology.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/schedule.h"
#include "sched/topology.h"

namespace sinew::sched {

namespace {

// Bounds on what a text may ask for: a day of latency and a byte a second are no machine.
constexpr double kMaxLatency = 86400;
constexpr double kMaxCost = 1;
constexpr std::size_t kMaxRules = 4096;

struct Unit {
  std::string_view name;
  double scale;
};

constexpr std::array kTimes = {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"ns", 1e-9}};
constexpr std::array kCosts = {Unit{"s/B", 1}, Unit{"us/B", 1e-6}, Unit{"ns/B", 1e-9},
                               Unit{"ps/B", 1e-12}};
constexpr std::array kBandwidths = {Unit{"B/s", 1}, Unit{"KB/s", 1e3}, Unit{"MB/s", 1e6},
                                    Unit{"GB/s", 1e9}, Unit{"TB/s", 1e12}};

std::string text_of(const RankSet& set, int world) {
  if (set.ranges.size() == 1 && set.ranges[0] == std::pair{0, world - 1}) return "*";
  std::string text;
  for (const auto& [first, last] : set.ranges) {
    text += text.empty() ? "" : ",";
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

class TopologyParser {
 public:
  explicit TopologyParser(std::string_view text) : lines_(text_lines(text)) {}

  Topology parse() {
    topology_ = {};
    topology_.name.clear();
    topology_.world = 0;
    for (line_ = 1; line_ <= lines_.size(); ++line_) {
      std::string_view line = lines_[line_ - 1];
      words_ = fields(line.substr(0, line.find('#')));
      if (!words_.empty()) parse_line();
    }
    line_ = lines_.size();
    if (topology_.world == 0) fail("no ranks", "ranks P");
    if (topology_.name.empty()) topology_.name = "unnamed";
    return std::move(topology_);
  }

 private:
  [[noreturn]] void fail(const std::string& found, std::string_view legal) const {
    throw UsageError(fmt::format("topology line {}: {}; legal: {}", line_, found, legal));
  }

  void parse_line() {
    const std::string_view word = words_[0];
    if (word == "topology") {
      expect_words(2, "topology NAME");
      topology_.name = words_[1];
    } else if (word == "ranks") {
      expect_words(2, "ranks P");
      if (topology_.world != 0) fail("a second 'ranks'", "one, before the links");
      topology_.world = whole(words_[1], 1, kMaxWorld);
    } else if (word == "ports") {
      expect_words(2, "ports N, 0 for any number");
      topology_.ports = whole(words_[1], 0, kMaxWorld);
    } else if (word == "reduce") {
      expect_words(2, "reduce COST");
      topology_.reduce_s_per_byte = cost(words_[1]);
    } else if (word == "copy") {
      expect_words(2, "copy COST");
      topology_.copy_s_per_byte = cost(words_[1]);
    } else if (word == "link") {
      parse_link();
    } else if (word == "share") {
      parse_share();
    } else if (word == "work") {
      parse_work();
    } else if (word == "cores") {
      parse_cores();
    } else {
      fail(fmt::format("'{}'", word),
           "topology, ranks, ports, reduce, copy, link, share, work, cores");
    }
  }

  void parse_link() {
    constexpr std::string_view kForm =
        "link RANKS ->|<-> RANKS latency TIME bandwidth RATE (or: cost COST)";
    expect_words(8, kForm);
    check_rules(topology_.links.size());
    const bool both = words_[2] == "<->";
    if ((!both && words_[2] != "->") || words_[4] != "latency") fail("a malformed link", kForm);
    LinkRule rule{ranks(words_[1]), ranks(words_[3]), both, {}};
    rule.link.latency_s = time(words_[5]);
    if (words_[6] == "bandwidth") {
      const double rate = quantity(words_[7], kBandwidths, 1e18, "1B/s and more, as 12GB/s");
      if (rate < 1) fail(fmt::format("'{}'", words_[7]), "a bandwidth of at least 1B/s");
      rule.link.cost_s_per_byte = 1 / rate;
    } else if (words_[6] == "cost") {
      rule.link.cost_s_per_byte = cost(words_[7]);
    } else {
      fail(fmt::format("'{}'", words_[6]), kForm);
    }
    topology_.links.push_back(std::move(rule));
  }

  void parse_share() {
    constexpr std::string_view kForm = "share NAME RANKS -> RANKS";
    expect_words(5, kForm);
    check_rules(topology_.shares.size());
    if (words_[3] != "->") fail(fmt::format("'{}'", words_[3]), kForm);
    topology_.shares.push_back({std::string(words_[1]), ranks(words_[2]), ranks(words_[4])});
  }

  void parse_work() {
    constexpr std::string_view kForm =
        "work RANKS ->|<-> RANKS message TIME cost COST [reduce COST]";
    const bool reduces = words_.size() == 10 && words_[8] == "reduce";
    if (!reduces) expect_words(8, kForm);
    check_rules(topology_.works.size());
    const bool both = words_[2] == "<->";
    if ((!both && words_[2] != "->") || words_[4] != "message" || words_[6] != "cost")
      fail("malformed work", kForm);
    topology_.works.push_back({ranks(words_[1]),
                               ranks(words_[3]),
                               both,
                               {time(words_[5]), cost(words_[7])},
                               reduces ? cost(words_[9]) : 0});
  }

  void parse_cores() {
    expect_words(4, "cores NAME RANKS N");
    check_rules(topology_.cores.size());
    topology_.cores.push_back(
        {std::string(words_[1]), ranks(words_[2]), whole(words_[3], 1, kMaxWorld)});
  }

  void expect_words(std::size_t count, std::string_view form) const {
    if (words_.size() != count) fail(fmt::format("{} words", words_.size()), form);
  }

  void check_rules(std::size_t count) const {
    if (topology_.world == 0) fail("a rule before 'ranks'", "ranks P first");
    if (count >= kMaxRules) fail("too many rules", fmt::format("at most {}", kMaxRules));
  }

  [[nodiscard]] int whole(std::string_view text, int low, int high) const {
    std::int64_t value = -1;
    try {
      value = parse_int(text, "number");
    } catch (const UsageError& error) {
      fail(error.what(), fmt::format("{} to {}", low, high));
    }
    if (value < low || value > high) {
      fail(fmt::format("{} is out of range", value), fmt::format("{} to {}", low, high));
    }
    return static_cast<int>(value);
  }

  template <std::size_t N>
  [[nodiscard]] double quantity(std::string_view text, const std::array<Unit, N>& units,
                                double most, std::string_view legal) const {
    const auto end = text.find_first_not_of("0123456789.");
    std::size_t unit_at = std::min(end, text.size());
    // A decimal exponent belongs to the number: 1e-06s.
    if (unit_at + 1 < text.size() && text[unit_at] == 'e') {
      const auto digits = text.find_first_not_of("0123456789", unit_at + 2);
      unit_at = std::min(digits, text.size());
    }
    const std::string_view name = text.substr(unit_at);
    for (const Unit& unit : units) {
      if (unit.name != name) continue;
      double value = -1;
      try {
        value = parse_double(text.substr(0, unit_at), "number") * unit.scale;
      } catch (const UsageError& error) {
        fail(error.what(), legal);
      }
      if (!(value >= 0 && value <= most)) fail(fmt::format("'{}' is out of range", text), legal);
      return value;
    }
    std::string names;
    for (const Unit& unit : units)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", unit.name);
    fail(fmt::format("'{}' is no number from 0 on with a known unit", text), names);
  }

  [[nodiscard]] double time(std::string_view text) const {
    return quantity(text, kTimes, kMaxLatency, "0s to 86400s, as 300ns or 2us");
  }

  [[nodiscard]] double cost(std::string_view text) const {
    return quantity(text, kCosts, kMaxCost, "0s/B to 1s/B, as 0.08ns/B");
  }

  [[nodiscard]] RankSet ranks(std::string_view text) const {
    const int last_rank = topology_.world - 1;
    if (text == "*") return {{{0, last_rank}}};
    RankSet set;
    for (const std::string_view part : split(text, ',')) {
      const auto dash = part.find('-');
      const int first = whole(part.substr(0, dash), 0, last_rank);
      const int last =
          dash == std::string_view::npos ? first : whole(part.substr(dash + 1), first, last_rank);
      set.ranges.emplace_back(first, last);
    }
    return merged(std::move(set));
  }

  // Sorted, without overlap or neighbours: one form for one set.
  [[nodiscard]] static RankSet merged(RankSet set) {
    std::sort(set.ranges.begin(), set.ranges.end());
    RankSet out;
    for (const auto& part : set.ranges) {
      if (!out.ranges.empty() && part.first <= out.ranges.back().second + 1) {
        out.ranges.back().second = std::max(out.ranges.back().second, part.second);
      } else {
        out.ranges.push_back(part);
      }
    }
    return out;
  }

  std::vector<std::string_view> lines_;
  std::vector<std::string_view> words_;
  std::size_t line_ = 0;
  Topology topology_;
};

}  // namespace

std::string print(const Topology& topology) {
  std::string text = fmt::format("topology {}\nranks {}\nports {}\nreduce {}s/B\ncopy {}s/B\n",
                                 topology.name, topology.world, topology.ports,
                                 topology.reduce_s_per_byte, topology.copy_s_per_byte);
  const auto out = std::back_inserter(text);
  for (const LinkRule& rule : topology.links) {
    fmt::format_to(out, "link {} {} {} latency {}s cost {}s/B\n",
                   text_of(rule.from, topology.world), rule.both_ways ? "<->" : "->",
                   text_of(rule.to, topology.world), rule.link.latency_s,
                   rule.link.cost_s_per_byte);
  }
  for (const ShareRule& rule : topology.shares) {
    fmt::format_to(out, "share {} {} -> {}\n", rule.name, text_of(rule.from, topology.world),
                   text_of(rule.to, topology.world));
  }
  for (const WorkRule& rule : topology.works) {
    fmt::format_to(out, "work {} {} {} message {}s cost {}s/B reduce {}s/B\n",
                   text_of(rule.from, topology.world), rule.both_ways ? "<->" : "->",
                   text_of(rule.to, topology.world), rule.each_end.latency_s,
                   rule.each_end.cost_s_per_byte, rule.reduce_s_per_byte);
  }
  for (const CoresRule& rule : topology.cores) {
    fmt::format_to(out, "cores {} {} {}\n", rule.name, text_of(rule.ranks, topology.world),
                   rule.count);
  }
  return text;
}

Topology parse_topology(std::string_view text) { return TopologyParser(text).parse(); }

}  // namespace sinew::sched
