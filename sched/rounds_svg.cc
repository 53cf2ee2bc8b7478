// The SVG drawing of rounds. Self-contained: no script, style sheet, font or image from elsewhere.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "sched/base/text.h"
#include "sched/rounds.h"
#include "sched/xml_text.h"

namespace sinew::sched {

namespace {

// Lengths in SVG units: a column leaves room for a label on its arrows, a row for a held dot.
constexpr double kLeft = 70;
constexpr double kTop = 56;
constexpr double kColumn = 110;
constexpr double kRow = 46;
constexpr double kDot = 6;

// Two colours of the palette of Okabe and Ito, apart for every kind of colour blindness.
constexpr const char* kCopyColour = "#009e73";
constexpr const char* kReduceColour = "#d55e00";

double x_of(std::size_t round) { return kLeft + kColumn * static_cast<double>(round); }
double y_of(int rank) { return kTop + kRow * rank; }

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:g}\" y=\"{:g}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escape_xml(text));
}

// The labels of arrows that cross stay apart: each stands near its sender.
std::string arrow(const RoundMessage& message, std::size_t round) {
  constexpr double kAlong = 0.3;
  constexpr double kHead = 9;
  const double x1 = x_of(round - 1) + kDot + 2;
  const double x2 = x_of(round) - kDot - 2;
  const double y1 = y_of(message.from);
  const double y2 = y_of(message.to);
  const double length = std::hypot(x2 - x1, y2 - y1);
  const double dx = (x2 - x1) / length;
  const double dy = (y2 - y1) / length;
  const char* colour = message.reduces ? kReduceColour : kCopyColour;
  std::string out = fmt::format(
      "<path d=\"M{:.1f},{:.1f} L{:.1f},{:.1f}\" stroke=\"{}\"><title>round {}: rank {} sends "
      "chunk "
      "{} to rank {}{}</title></path>\n",
      x1, y1, x2 - kHead * dx, y2 - kHead * dy, colour, round, message.from,
      name_of_chunks(message.chunks), message.to,
      message.reduces ? ", which adds it to its own" : "");
  out += fmt::format("<path d=\"M{:.1f},{:.1f} L{:.1f},{:.1f} L{:.1f},{:.1f} z\" fill=\"{}\"/>\n",
                     x2, y2, x2 - kHead * dx - kHead / 3 * dy, y2 - kHead * dy + kHead / 3 * dx,
                     x2 - kHead * dx + kHead / 3 * dy, y2 - kHead * dy - kHead / 3 * dx, colour);
  return out +
         fmt::format(
             "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"{}\">{}{}</text>\n",
             x1 + kAlong * (x2 - x1), y1 + kAlong * (y2 - y1) - 3, colour,
             name_of_chunks(message.chunks), message.reduces ? "+" : "");
}

// The fuller the dot, the more contributions of all the rank holds.
std::string dot(const Round& round, std::size_t column, int rank, int world) {
  const std::vector<std::uint64_t>& held = round.held[static_cast<std::size_t>(rank)];
  std::string words;
  double contributions = 0;
  for (std::size_t chunk = 0; chunk < held.size(); ++chunk) {
    words += fmt::format("{}chunk {}: {}", chunk == 0 ? "" : "; ", chunk,
                         name_of_held(held[chunk], world));
    contributions += std::popcount(held[chunk]);
  }
  const double share = contributions / (static_cast<double>(held.size()) * world);
  return fmt::format(
      "<circle cx=\"{:g}\" cy=\"{:g}\" r=\"{:g}\" stroke=\"#333\" fill=\"#0072b2\" "
      "fill-opacity=\"{:.2f}\"><title>rank {} {} holds {}</title></circle>\n",
      x_of(column), y_of(rank), kDot, share, rank,
      column == 0 ? "at the start" : fmt::format("after round {}", column), escape_xml(words));
}

}  // namespace

std::string draw_rounds_svg(const Schedule& schedule) {
  const int world = schedule.contract.world;
  const std::vector<Round> rounds = rounds_of(schedule);
  const double width = x_of(rounds.size() - 1) + 40;
  const double height = y_of(world - 1) + 60;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#fff\"/>\n",
      width, height);
  out += text_at(12, 18, "start",
                 fmt::format("{} by {}, {}", name_of(schedule.contract.op), schedule.name,
                             counted(world, "rank")));
  for (int rank = 0; rank < world; ++rank) {
    out += fmt::format("<path d=\"M{:g},{:g} H{:g}\" stroke=\"#ccc\" stroke-dasharray=\"2 3\"/>\n",
                       x_of(0), y_of(rank), x_of(rounds.size() - 1));
    out += text_at(kLeft - 14, y_of(rank) + 4, "end", fmt::format("rank {}", rank));
  }
  for (std::size_t round = 1; round < rounds.size(); ++round) {
    out += text_at((x_of(round - 1) + x_of(round)) / 2, kTop - 20, "middle",
                   fmt::format("round {}", round));
    for (const RoundMessage& message : rounds[round].messages) out += arrow(message, round);
  }
  for (std::size_t column = 0; column < rounds.size(); ++column) {
    for (int rank = 0; rank < world; ++rank) out += dot(rounds[column], column, rank, world);
  }
  out +=
      text_at(12, height - 14, "start",
              "green: copied; orange, with +: added to the receiver's own; dots fill with what a "
              "rank holds");
  return out + "</svg>\n";
}

}  // namespace sinew::sched
