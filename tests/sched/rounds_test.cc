// Rounds: as many as are counted, one message per rank and direction in each, and all contributions
// at the end. And the pictures in the headers of the algorithms' files are what is drawn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sched/base/text.h"
#include "sched/collective/registry.h"
#include "sched/rounds.h"
#include "sched/simulate.h"
#include "tests/sched/well_formed.h"

namespace sinew::sched {
namespace {

template <typename Body>
void for_each_small_schedule(Body body) {
  for (const Algorithm& row : algorithms()) {
    for (int world = 1; world <= 16; ++world) {
      const Params params = {.world = world, .root = world / 2};
      if (!row.refuse(params).empty()) continue;
      body(generate(row, params), fmt::format("{} {} world {}", name_of(row.op), row.name, world));
    }
  }
}

TEST(Rounds, AreAsManyAsAreCounted) {
  for_each_small_schedule([](const Schedule& schedule, const std::string& name) {
    EXPECT_EQ(static_cast<double>(rounds_of(schedule).size()) - 1, count_cost(schedule).rounds)
        << name;
  });
}

TEST(Rounds, HaveAtMostOneMessageFromAndToEachRank) {
  for_each_small_schedule([](const Schedule& schedule, const std::string& name) {
    for (const Round& round : rounds_of(schedule)) {
      std::set<int> from;
      std::set<int> to;
      for (const RoundMessage& message : round.messages) {
        EXPECT_TRUE(from.insert(message.from).second) << name;
        EXPECT_TRUE(to.insert(message.to).second) << name;
        EXPECT_FALSE(message.chunks.empty()) << name;
      }
    }
  });
}

TEST(Rounds, EndWithTheContractsOutput) {
  for_each_small_schedule([](const Schedule& schedule, const std::string& name) {
    const Contract& contract = schedule.contract;
    const std::vector<Round> rounds = rounds_of(schedule);
    for (int rank = 0; rank < contract.world; ++rank) {
      for (int chunk = 0; chunk < contract.chunks(); ++chunk) {
        if (!contract.has_output(rank, chunk)) continue;
        const std::uint64_t held =
            rounds.back().held[static_cast<std::size_t>(rank)][static_cast<std::size_t>(chunk)];
        const std::uint64_t all = (std::uint64_t{1} << contract.world) - 1;
        const bool from_all = contract.reduces() || (contract.op == Collective::kAllToAll &&
                                                     chunk / contract.chunks_per_block == rank);
        EXPECT_TRUE(from_all ? held == all : held != 0)
            << name << " rank " << rank << " chunk " << chunk;
      }
    }
  });
}

TEST(Rounds, AreDrawnAsWellFormedSvgWithAnArrowPerMessage) {
  for_each_small_schedule([](const Schedule& schedule, const std::string& name) {
    if (schedule.contract.world > 8) return;
    SCOPED_TRACE(name);
    std::size_t messages = 0;
    for (const Round& round : rounds_of(schedule)) messages += round.messages.size();
    const std::string svg = draw_rounds_svg(schedule);
    expect_well_formed(svg);
    std::size_t arrows = 0;
    for (std::size_t at = svg.find("<title>round "); at != std::string::npos;
         at = svg.find("<title>round ", at + 1)) {
      ++arrows;
    }
    EXPECT_EQ(arrows, messages);
  });
}

TEST(Rounds, SvgEscapesTheScheduleName) {
  Schedule schedule = generate(find_algorithm(Collective::kAllGather, "ring"), {.world = 3});
  schedule.name = "a<b>&\"c\"";
  const std::string svg = draw_rounds_svg(schedule);
  expect_well_formed(svg);
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;"), std::string::npos);
}

constexpr std::string_view kMarker = "// Picture: ";

// What belongs under "// Picture: OP NAME, 4 ranks".
std::vector<std::string> picture(std::string_view line) {
  const std::vector<std::string_view> words = fields(line.substr(kMarker.size()));
  if (words.size() != 4) return {"//   (malformed marker)"};
  const std::string_view name = words[1].substr(0, words[1].size() - 1);
  const Algorithm& row = find_algorithm(parse_collective(words[0]), name);
  const Params params = {.world = static_cast<int>(parse_int(words[2], "world"))};
  const std::string text = draw_rounds(generate(row, params));
  std::vector<std::string> lines;
  for (const std::string_view drawn : split(trim(text), '\n')) {
    lines.push_back(drawn.empty() ? "//" : "//   " + std::string(trim(drawn)));
  }
  return lines;
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The file with every picture as it is drawn now: lines of one under a marker are those that are
// indented or empty comments and stand before the next text.
std::string with_pictures(const std::string& text) {
  std::string out;
  bool in_picture = false;
  for (const std::string_view line : split(text, '\n')) {
    in_picture = in_picture && (line == "//" || line.starts_with("//   "));
    if (in_picture && (line.starts_with("//   round") || line.starts_with("//   held") ||
                       line.starts_with("//   start") || line == "//")) {
      continue;
    }
    if (line.starts_with(kMarker) && !out.ends_with("//\n")) out += "//\n";
    out += std::string(line) + "\n";
    if (!line.starts_with(kMarker)) continue;
    in_picture = true;
    for (const std::string& drawn : picture(line)) out += drawn + "\n";
  }
  out.pop_back();
  return out;
}

// To draw them anew: SINEW_UPDATE_PICTURES=1 test_sched --gtest_filter='Pictures*'
TEST(Pictures, InTheAlgorithmsFilesAreWhatIsDrawn) {
  const std::filesystem::path folder =
      std::filesystem::path(SINEW_SOURCE_DIR) / "sched" / "collective";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string text = read_file(entry.path());
    if (text.find("constinit const Algorithm") == std::string::npos) continue;
    ++files;
    EXPECT_NE(text.find(kMarker), std::string::npos) << entry.path() << " has no picture";
    const std::string drawn = with_pictures(text);
    EXPECT_EQ(text, drawn) << entry.path();
    if (std::getenv("SINEW_UPDATE_PICTURES") != nullptr) std::ofstream(entry.path()) << drawn;
  }
  EXPECT_GE(files, 8);
}

}  // namespace
}  // namespace sinew::sched
