// Timeline: spans on lanes, from the simulator or from a real run: the only thing that is drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sinew::sched {

struct Span {
  int row = 0;         // rank
  int lane = 0;        // resource within the rank (compute, send, receive, ...)
  std::string label;   // "F3", "reduce 2<-1"; its first character picks the colour and the text glyph
  double begin_s = 0;
  double end_s = 0;
};

struct Timeline {
  std::string title;
  std::vector<Span> spans;
  [[nodiscard]] double begin_s() const;
  [[nodiscard]] double end_s() const;
};

// One line per (row, lane), `columns` characters wide; a scale below. Deterministic.
[[nodiscard]] std::string draw_text(const Timeline& timeline, int columns = 100);
// A standalone SVG document.
[[nodiscard]] std::string draw_svg(const Timeline& timeline);
// Chrome trace-event JSON (chrome://tracing, Perfetto).
[[nodiscard]] std::string draw_trace(const Timeline& timeline);

}  // namespace sinew::sched
