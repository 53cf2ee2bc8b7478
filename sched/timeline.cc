// Text and trace drawings; timeline_svg.cc has the SVG.
#include "sched/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sched/base/check.h"
#include "sched/timeline_scale.h"

namespace sinew::sched {

double Timeline::begin_s() const {
  double begin = spans.empty() ? 0 : spans.front().begin_s;
  for (const Span& span : spans) begin = std::min(begin, span.begin_s);
  return begin;
}

double Timeline::end_s() const {
  double end = spans.empty() ? 0 : spans.front().end_s;
  for (const Span& span : spans) end = std::max(end, span.end_s);
  return end;
}

namespace {

// A span's cells: what fits of its label, then a pattern that tells the kinds apart. A shade, which
// text cannot show, becomes a lower-case letter.
std::string cells_of(const Span& span, std::size_t width) {
  const std::string& label = span.label;
  const char kind = label.empty() ? '#' : label.front();
  const char fill = kind == 'B' ? '=' : kind == 'W' ? '~' : kind == '>' || kind == '<' ? kind : '-';
  std::string text = label.size() <= width ? label : std::string(1, kind);
  text.resize(width, fill);
  if (span.shade > 0 && text.front() >= 'A' && text.front() <= 'Z') text.front() += 'a' - 'A';
  return text;
}

// As many cells as `room` allows, fewer where that lets every span begin and end on a cell.
int cells_for(const Timeline& timeline, int room) {
  const double begin = timeline.begin_s();
  const double length = timeline.end_s() - begin;
  double grain = length;
  for (const Span& span : timeline.spans) {
    if (span.end_s > span.begin_s) grain = std::min(grain, span.end_s - span.begin_s);
  }
  if (length <= 0 || length / grain > room) return room;
  const auto is_multiple = [grain](double time) {
    constexpr double kTolerance = 1e-6;  // of a grain: below what a cell can show
    return std::abs(time / grain - std::round(time / grain)) < kTolerance;
  };
  for (const Span& span : timeline.spans) {
    if (!is_multiple(span.begin_s - begin) || !is_multiple(span.end_s - begin)) return room;
  }
  const int grains = static_cast<int>(std::lround(length / grain));
  return room / grains * grains;
}

std::string scale_line(const TimeScale& scale, int cells) {
  std::string line;
  for (int tick = 0; tick <= scale.ticks(); ++tick) {
    const auto at =
        static_cast<std::size_t>(std::lround(scale.tick(tick) / scale.length() * cells));
    line.resize(std::max(line.size() + (line.empty() ? 0 : 1), at), ' ');
    line += scale.label(tick);
  }
  return line;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::vector<TimelineLane> lanes_of(const Timeline& timeline) {
  std::set<std::pair<int, int>> used;
  std::map<int, int> lanes_in_row;
  for (const Span& span : timeline.spans) {
    if (used.emplace(span.row, span.lane).second) ++lanes_in_row[span.row];
  }
  std::vector<TimelineLane> lanes;
  for (const auto& [row, lane] : used) {
    std::string name = timeline.row_name + " " + std::to_string(row);
    const auto index = static_cast<std::size_t>(lane);
    if (lanes_in_row[row] > 1) {
      const bool named = lane >= 0 && index < timeline.lane_names.size();
      const std::string lane_name =
          named ? timeline.lane_names[index] : "lane " + std::to_string(lane);
      if (!lane_name.empty()) name += " " + lane_name;
    }
    lanes.push_back({row, lane, std::move(name), {}});
  }
  for (const Span& span : timeline.spans) {
    CHECK(std::isfinite(span.begin_s) && std::isfinite(span.end_s));
    CHECK_LE(span.begin_s, span.end_s);
    const auto lane = std::lower_bound(lanes.begin(), lanes.end(), std::pair(span.row, span.lane),
                                       [](const TimelineLane& a, const std::pair<int, int>& b) {
                                         return std::pair(a.row, a.lane) < b;
                                       });
    lane->spans.push_back(&span);
  }
  for (TimelineLane& lane : lanes) {
    std::stable_sort(lane.spans.begin(), lane.spans.end(),
                     [](const Span* a, const Span* b) { return a->begin_s < b->begin_s; });
  }
  return lanes;
}

TimeScale::TimeScale(const Timeline& timeline, int ticks_max)
    : length_(timeline.end_s() - timeline.begin_s()) {
  struct Unit {
    double size_s;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  unit_ = timeline.unit;
  if (unit_.empty()) {
    const Unit* unit = kUnits;
    // The largest unit in which the length is at least 2, so that two numbers tell the scale.
    while (length_ > 0 && unit + 1 != std::end(kUnits) && length_ < 2 * unit->size_s) ++unit;
    unit_ = unit->name;
    unit_size_ = unit->size_s;
  }
  if (length_ <= 0) return;
  const double least = length_ / unit_size_ / ticks_max;
  step_ = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (step_ * factor < least * (1 - 1e-9)) continue;
    step_ *= factor;
    break;
  }
  ticks_ = static_cast<int>(std::floor(length_ / unit_size_ / step_ * (1 + 1e-9)));
}

std::string TimeScale::label(int index) const { return fmt::format("{:.6g}", step_ * index); }

std::string draw_text(const Timeline& timeline, int columns) {
  constexpr int kRoomMin = 10;
  const std::vector<TimelineLane> lanes = lanes_of(timeline);
  std::size_t name_width = 0;
  for (const TimelineLane& lane : lanes) name_width = std::max(name_width, lane.name.size());
  const int room = std::max(columns - static_cast<int>(name_width) - 3, kRoomMin);
  const double begin = timeline.begin_s();
  const double length = timeline.end_s() - begin;
  const int cells = cells_for(timeline, room);
  const auto cell_of = [&](double time) {
    return length > 0 ? static_cast<std::size_t>(std::lround((time - begin) / length * cells)) : 0;
  };

  std::string text = timeline.title.empty() ? "" : timeline.title + "\n";
  for (const TimelineLane& lane : lanes) {
    std::string line(static_cast<std::size_t>(cells), ' ');
    for (const Span* span : lane.spans) {
      const std::size_t first = cell_of(span->begin_s);
      const std::size_t width = cell_of(span->end_s) - first;
      if (width > 0) {
        line.replace(first, width, cells_of(*span, width));
      } else if (first < line.size() && line[first] == ' ') {
        line[first] = cells_of(*span, 1).front();  // too short for a cell, but it happened
      }
    }
    text += fmt::format("{:<{}} |{}|\n", lane.name, name_width, line);
  }
  const TimeScale scale(timeline, std::max(cells / 6, 1));
  return text + fmt::format("{:>{}}  {}\n", scale.unit(), name_width, scale_line(scale, cells));
}

std::string draw_trace(const Timeline& timeline) {
  constexpr double kMicrosecond = 1e-6;
  std::string events;
  const auto add = [&events](const std::string& event) {
    events += (events.empty() ? "\n" : ",\n") + event;
  };
  int named_row = -1;
  for (const TimelineLane& lane : lanes_of(timeline)) {
    if (lane.row != named_row) {
      named_row = lane.row;
      add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})",
                      lane.row, json_string(timeline.row_name + " " + std::to_string(lane.row))));
    }
    add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                    lane.row, lane.lane, json_string(lane.name)));
    for (const Span* span : lane.spans) {
      add(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{:.6g},"dur":{:.6g},"name":{}}})",
                      span->row, span->lane, span->begin_s / kMicrosecond,
                      (span->end_s - span->begin_s) / kMicrosecond, json_string(span->label)));
    }
  }
  return fmt::format(
      "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"title\":{}}},\"traceEvents\":[{}\n]}}\n",
      json_string(timeline.title), events);
}

}  // namespace sinew::sched
