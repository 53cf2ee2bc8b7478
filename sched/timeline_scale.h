// What the drawings of a timeline share: its lanes in order of drawing, and a scale with round
// numbers.
//
// Never does: write text or SVG (timeline.cc, timeline_svg.cc).
// Threads: plain values; a TimelineLane points into the timeline it was made from.
#pragma once

#include <string>
#include <vector>

#include "sched/timeline.h"

namespace sinew::sched {

struct TimelineLane {
  int row;
  int lane;
  std::string name;                // "rank 0", or "rank 0 forward" where a row has several lanes
  std::vector<const Span*> spans;  // by increasing begin
};

// The lanes that have spans, by increasing row and lane. Checks the timeline's invariants.
[[nodiscard]] std::vector<TimelineLane> lanes_of(const Timeline& timeline);

// Ticks at 0, step, 2 step, ... up to the length, where the step is 1, 2 or 5 times a power of ten
// of `unit`, and at most `ticks_max` steps fit. Times count from the begin of the timeline.
class TimeScale {
 public:
  TimeScale(const Timeline& timeline, int ticks_max);
  [[nodiscard]] const std::string& unit() const { return unit_; }
  [[nodiscard]] double length() const {
    return length_ > 0 ? length_ : 1;
  }                                                   // in the timeline's own time
  [[nodiscard]] int ticks() const { return ticks_; }  // the last tick's index
  [[nodiscard]] double tick(int index) const { return step_ * index * unit_size_; }
  [[nodiscard]] std::string label(int index) const;

 private:
  std::string unit_;
  double unit_size_ = 1;
  double length_ = 0;
  double step_ = 1;
  int ticks_ = 0;
};

}  // namespace sinew::sched
