// The tree's habits, checked from its text: size of files and lines, words that mark unfinished
// work, include arrows that point down only, MPI only where it may be, a README in every folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace sinew::test {
namespace {

namespace fs = std::filesystem;
using Findings = std::vector<std::string>;

constexpr int kLinesMax = 750;
constexpr int kCodeColumnsMax = 100;  // not between the marks that keep a table's rows one a line
constexpr int kTextColumnsMax = 130;  // scripts and build files; prose is not counted
const std::set<std::string> kFolders = {"sched", "kernels", "comm", "model",
                                        "bench", "tests",   "tools"};

// Which top folders each may include. tests, bench and tools may include all.
const std::map<std::string, std::set<std::string>> kArrows = {
    {"sched", {"sched"}},
    {"kernels", {"kernels", "sched/base"}},
    {"comm", {"comm", "kernels", "sched"}},
    {"model", {"model", "comm", "kernels", "sched"}},
};

// sched is pure: none of these headers, and none of these words.
const std::set<std::string> kImpureHeaders = {
    "thread",  "mutex",    "atomic", "chrono", "condition_variable", "future",
    "fstream", "iostream", "random", "mpi.h",  "unistd.h",           "filesystem"};

// Words are cut in two here so that this file does not find itself.
const std::vector<std::string> kUnfinished = {
    "TO"
    "DO",
    "FIX"
    "ME",
    "HA"
    "CK",
    "not "
    "implemented",
    "#if"
    " 0"};
const std::string kDirective =
    "using "
    "namespace";

// MPI starts processes and is a baseline; it moves no byte of ours.
const std::set<std::string> kMayMoveByMpi = {"bench/mpi_baseline.cc", "tests/mpi_main.cc",
                                             "tests/tools/tidy_test.cc"};
const std::vector<std::string> kMpiMoves = {
    "MPI_Send", "MPI_Isend",     "MPI_Recv",   "MPI_Irecv", "MPI_Put",
    "MPI_Get(", "MPI_Allreduce", "MPI_Reduce", "MPI_Bcast", "MPI_Alltoall"};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string included_path(const std::string& line, char open, char close) {
  if (!line.starts_with("#include ")) return {};
  const std::size_t begin = line.find(open);
  const std::size_t end = begin == std::string::npos ? begin : line.find(close, begin + 1);
  return end == std::string::npos ? std::string() : line.substr(begin + 1, end - begin - 1);
}

void check_includes(const std::string& path, const std::string& line, Findings& found) {
  const std::string folder = path.substr(0, path.find('/'));
  const auto arrow = kArrows.find(folder);
  const std::string included = included_path(line, '"', '"');
  const bool ours = kFolders.contains(included.substr(0, included.find('/')));
  if (ours && arrow != kArrows.end()) {
    const bool legal =
        std::any_of(arrow->second.begin(), arrow->second.end(),
                    [&](const std::string& target) { return included.starts_with(target + "/"); });
    if (!legal) found.push_back("may not include " + included);
  }
  const std::string system = included_path(line, '<', '>');
  if (folder == "sched" && kImpureHeaders.contains(system)) {
    found.push_back("sched is pure: no <" + system + ">");
  }
}

void check_words(const std::string& path, const std::string& line, Findings& found) {
  for (const std::string& word : kUnfinished) {
    if (line.find(word) != std::string::npos) found.push_back("unfinished: " + word);
  }
  if (line.find("GTEST_"
                "SKIP();") != std::string::npos)
    found.push_back("a skip must say what it needs");
  if (!path.starts_with("tests/") && line.find("NOLINT") == std::string::npos &&
      line.find(kDirective) != std::string::npos) {
    found.push_back("names are spelled out: " + kDirective);
  }
  if (!kMayMoveByMpi.contains(path)) {
    for (const std::string& call : kMpiMoves) {
      if (line.find(call) != std::string::npos)
        found.push_back("no byte moves through MPI: " + call);
    }
  }
  if (path.starts_with("sched/") && line.find("getenv") != std::string::npos)
    found.push_back("sched is pure: getenv");
}

// Headers that are read once per instruction set, on purpose.
bool is_read_again(const std::string& path, const std::string& text) {
  return path.ends_with("_inl.h") || text.find("foreach_target.h") != std::string::npos;
}

// All findings of one file: "line 3: ...".
Findings check_text(const std::string& path, const std::string& text) {
  Findings findings;
  const std::vector<std::string> lines = lines_of(text);
  const bool header = path.ends_with(".h");
  const bool code = header || path.ends_with(".cc") || path.ends_with(".cu");
  const std::size_t columns = path.ends_with(".md") ? std::string::npos
                              : code                ? kCodeColumnsMax
                                                    : kTextColumnsMax;
  if (lines.size() > kLinesMax)
    findings.push_back("has " + std::to_string(lines.size()) + " lines");
  // The C header has what every C compiler knows instead.
  const bool guarded = text.find("#pragma once") != std::string::npos ||
                       (text.starts_with("/*") && text.find("#ifndef SINEW_") != std::string::npos);
  if (header && !is_read_again(path, text) && !guarded) {
    findings.push_back("no #pragma once");
  }
  if (header && !text.starts_with("//") && !text.starts_with("/*"))
    findings.push_back("a header says first what it is");
  bool table = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Findings found;
    if (lines[i].find("// clang-format o") != std::string::npos) table = lines[i].ends_with("off");
    if (!table && columns_of(lines[i]) > columns)
      found.push_back("is over " + std::to_string(columns) + " columns");
    if (lines[i].ends_with(" ") || lines[i].find('\t') != std::string::npos)
      found.push_back("blank at the end or tab");
    if (code) check_includes(path, lines[i], found);
    if (code) check_words(path, lines[i], found);
    for (const std::string& what : found)
      findings.push_back("line " + std::to_string(i + 1) + ": " + what);
  }
  return findings;
}

// Files of the tree that people write, as paths below the root.
std::vector<std::string> source_files() {
  std::vector<std::string> files;
  const fs::path root = SINEW_SOURCE_DIR;
  const std::set<std::string> endings = {".h", ".cc", ".cu", ".sh", ".py", ".txt", ".md"};
  for (const std::string& folder : kFolders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).string();
      const bool data = path.find("/golden/") != std::string::npos ||
                        path.find("/corpus/") != std::string::npos ||
                        path.find("/results/") != std::string::npos;
      if (entry.is_regular_file() && endings.contains(entry.path().extension().string()) && !data)
        files.push_back(path);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_text(const std::string& path) {
  std::ifstream file(fs::path(SINEW_SOURCE_DIR) / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Tidy, EveryFileKeepsTheHabits) {
  const std::vector<std::string> files = source_files();
  ASSERT_GT(files.size(), 20U);
  for (const std::string& path : files) {
    for (const std::string& finding : check_text(path, read_text(path)))
      ADD_FAILURE() << path << " " << finding;
  }
}

// What is started by its name has a first line that says by what, and may be started.
TEST(Tidy, WhatSaysByWhatItRunsMayBeRun) {
  const fs::path root = SINEW_SOURCE_DIR;
  std::vector<fs::path> files = {root / ".ci/run"};
  for (const std::string& folder : kFolders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::size_t scripts = 0;
  for (const fs::path& path : files) {
    std::array<char, 2> begin{};
    std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
    const bool script = begin == std::array{'#', '!'};
    const bool may = (fs::status(path).permissions() & fs::perms::owner_exec) != fs::perms::none;
    scripts += script ? 1 : 0;
    EXPECT_EQ(script, may) << path << (script ? " may not be executed" : " is no script");
  }
  EXPECT_GT(scripts, 20U);
}

TEST(Tidy, EveryFolderSaysWhatItOwns) {
  for (const std::string& folder : kFolders) {
    EXPECT_TRUE(fs::exists(fs::path(SINEW_SOURCE_DIR) / folder / "README.md"))
        << folder << "/README.md is missing";
  }
}

TEST(Tidy, FindsWhatItLooksFor) {
  const std::string header = "// A.\n#pragma once\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"sched/a.h", "// A.\n"},
      {"sched/a.h", "#pragma once\n"},
      {"sched/a.h", header + "#include \"comm/a.h\"\n"},
      {"sched/a.h", header + "#include <thread>\n"},
      {"kernels/a.h", header + "#include \"sched/schedule.h\"\n"},
      {"comm/a.h", header + "#include \"model/a.h\"\n"},
      {"comm/a.cc", "MPI_Allreduce(a);\n"},
      {"model/a.cc", "// " + kUnfinished[0] + "\n"},
      {"model/a.cc", std::string(101, 'x') + "\n"},
      {"tools/a.sh", std::string(131, 'x') + "\n"},
      {"model/a.cc", kDirective + " sinew;\n"},
      {"model/a.cc", "x \n"},
      {"tests/a.cc", std::string(kLinesMax + 1, '\n')},
  };
  for (const auto& [path, text] : bad)
    EXPECT_EQ(check_text(path, text).size(), 1U) << path << "\n" << text;
  EXPECT_TRUE(
      check_text("model/a.h", header + "#include \"comm/a.h\"\n#include <thread>\n").empty());
  EXPECT_TRUE(check_text("kernels/a.h", header + "#include \"sched/base/check.h\"\n").empty());
}

}  // namespace
}  // namespace sinew::test
