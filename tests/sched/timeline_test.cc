// Snapshots of the three drawings, and laws of all drawings of seeded random timelines.
#include "sched/timeline.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "sched/base/text.h"
#include "tests/sched/well_formed.h"

namespace sinew::sched {
namespace {

Timeline two_ranks() {
  Timeline timeline;
  timeline.title = "two ranks";
  timeline.unit = "F";
  timeline.lane_names = {"", "forward"};
  timeline.spans = {{0, 0, "F0", 0, 1, 0}, {0, 1, ">0", 1, 2, 0}, {1, 0, "F0", 2, 3, 1},
                    {1, 0, "B0", 3, 5, 0}, {0, 0, "B0", 5, 7, 0}, {0, 0, "W0", 7, 8, 0}};
  return timeline;
}

TEST(Timeline, TextSnapshotWithAllSpansOnWholeCells) {
  EXPECT_EQ(draw_text(two_ranks(), 50),
            "two ranks\n"
            "rank 0         |F0--                B0======W0~~|\n"
            "rank 0 forward |    >0>>                        |\n"
            "rank 1         |        f0--B0======            |\n"
            "             F  0       2       4       6       8\n");
}

TEST(Timeline, TextSnapshotOfSecondsNarrowSpansAndAnInstant) {
  Timeline timeline;
  timeline.spans = {{3, 0, "reduce 2<-1", 0, 0.0031, 0},
                    {3, 0, "copy", 0.0040, 0.00405, 0},
                    {3, 0, "wait", 0.0045, 0.0045, 0},
                    {3, 0, "send", 0.0045, 0.0062, 0}};
  EXPECT_EQ(draw_text(timeline, 40),
            "rank 3 |reduce 2<-1-----    c  send----|\n"
            "    ms  0         2         4         6\n");
}

TEST(Timeline, EmptyTimelineDrawsNothingButItsScale) {
  Timeline timeline;
  timeline.title = "nothing";
  EXPECT_EQ(draw_text(timeline, 40), "nothing\ns  0\n");
  EXPECT_NE(draw_svg(timeline).find("nothing"), std::string::npos);
  EXPECT_NE(draw_trace(timeline).find("\"traceEvents\":[\n]"), std::string::npos);
}

TEST(Timeline, TraceSnapshot) {
  Timeline timeline;
  timeline.title = "say \"hi\"";
  timeline.spans = {{0, 0, "F0", 0.001, 0.0025, 0}};
  EXPECT_EQ(draw_trace(timeline),
            R"({"displayTimeUnit":"ns","otherData":{"title":"say \"hi\""},"traceEvents":[
{"ph":"M","pid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"rank 0"}},
{"ph":"X","pid":0,"tid":0,"ts":1000,"dur":1500,"name":"F0"}
]}
)");
}

// The drawing is kept as a file so that it can be looked at; a changed one is written beside the
// build.
TEST(Timeline, SvgSnapshot) {
  Timeline timeline = two_ranks();
  timeline.title = "two ranks & a <snapshot>";
  const std::string drawn = draw_svg(timeline);
  std::ifstream file(SINEW_SOURCE_DIR "/tests/sched/timeline.svg");
  const std::string kept((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (drawn != kept) std::ofstream(SINEW_BINARY_DIR "/timeline.svg") << drawn;
  EXPECT_TRUE(drawn == kept) << "compare tests/sched/timeline.svg with " SINEW_BINARY_DIR
                                "/timeline.svg";
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size()))
    ++found;
  return found;
}

TEST(Timeline, RandomTimelinesFitTheColumnsAndShowEverySpanOnceInSvgAndTrace) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Timeline timeline;
    timeline.title = "<random> & \"quoted\"\n";
    const unsigned spans = random() % 40;
    for (unsigned i = 0; i < spans; ++i) {
      const double begin = random() % 1000 * 1e-7;
      const double length = random() % 3 == 0 ? 0 : random() % 200 * 1e-7;
      const std::string label =
          i % 5 == 0 ? "" : std::string(1, static_cast<char>(' ' + random() % 95)) + "<&>\"";
      timeline.spans.push_back({static_cast<int>(random() % 3), static_cast<int>(random() % 3),
                                label, begin, begin + length, static_cast<int>(random() % 9)});
    }
    const int columns = 40 + static_cast<int>(random() % 100);
    const std::string text = draw_text(timeline, columns);
    for (const std::string_view line : split(text, '\n')) {
      const bool is_lane =
          line.find('|') != std::string_view::npos;  // a scale's last number may stand out
      EXPECT_LE(line.size(), is_lane ? static_cast<std::size_t>(columns) : 200U);
    }
    const std::string svg = draw_svg(timeline);
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "<title>"), spans);
    EXPECT_EQ(count(draw_trace(timeline), "\"ph\":\"X\""), spans);
  }
}

}  // namespace
}  // namespace sinew::sched
