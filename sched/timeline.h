// Timeline: spans on lanes, from the simulator or from a real run: the only thing that is drawn.
//
// Never does: measure time or open a file; the caller fills the spans and writes the text where it
// wants it.
// Threads: plain values.
//
// Invariants: begin_s <= end_s, both finite; spans may come in any order and may overlap (real runs
// do).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinew::sched {

struct Span {
  int row = 0;   // rank
  int lane = 0;  // resource within the rank (compute, send, receive, ...)
  std::string
      label;  // "F3", "reduce 2<-1"; its first character picks the colour and the text glyph
  double begin_s = 0;
  double end_s = 0;
  int shade = 0;  // 0 is the full colour; 1, 2, ... are lighter ones: the model chunk of an
                  // interleaved stage
};

struct Timeline {
  std::string title;
  std::vector<Span> spans;
  std::string row_name = "rank";        // rows are labelled "rank 0", "rank 1", ...
  std::vector<std::string> lane_names;  // of lane 0, 1, ...; a row's only lane is not named
  std::string unit;  // empty: times are seconds. Else plain numbers of this unit ("F")
  [[nodiscard]] double begin_s() const;
  [[nodiscard]] double end_s() const;
};

// One line per (row, lane), at most `columns` characters wide; a scale below. Labels are cut to
// their first letter where they do not fit, and begin in lower case in shaded spans. Deterministic.
[[nodiscard]] std::string draw_text(const Timeline& timeline, int columns = 100);
// A standalone SVG document.
[[nodiscard]] std::string draw_svg(const Timeline& timeline);
// Chrome trace-event JSON (chrome://tracing, Perfetto).
[[nodiscard]] std::string draw_trace(const Timeline& timeline);

}  // namespace sinew::sched
