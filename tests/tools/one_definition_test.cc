// One name, one type. Two types of one name at namespace level are undefined behaviour even in
// files that never meet: the linker keeps one copy of each template or inline function over them,
// made for one layout and used for both. The compiler cannot see it; only some builds break.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace sinew::test {
namespace {

namespace fs = std::filesystem;

using Place = std::string;                                // path:line
using Types = std::map<std::string, std::vector<Place>>;  // qualified name -> definitions

// Adds the types that `path` defines at namespace level. Relies on the tree's format: what stands
// in a namespace begins in column 0, and so does the namespace's closing brace.
void collect(const fs::path& path, const std::string& scope, Types& types) {
  static const std::regex kNamespace(R"(^(?:inline )?namespace ?([\w:]*) ?\{$)");
  static const std::regex kType(
      R"(^(?:struct|class|union|enum class|enum) (\w+)(?: final)?(?: :.*)?(?: \{.*)?$)");
  std::ifstream file(path);
  std::vector<std::string> names;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::smatch match;
    if (std::regex_match(line, match, kNamespace)) {
      // What an unnamed namespace holds belongs to its file.
      names.push_back(match[1].length() ? match[1].str() : path.string());
    } else if (line.starts_with("}  // namespace")) {
      if (!names.empty()) names.pop_back();
    } else if (std::regex_match(line, match, kType) && line.find('{') != std::string::npos) {
      std::string qualified = scope;
      for (const std::string& name : names) qualified += name + "::";
      types[qualified + match[1].str()].push_back(path.string() + ":" + std::to_string(number));
    }
  }
}

// The definitions of each name that has several.
std::vector<std::string> doubles(const Types& types) {
  std::vector<std::string> found;
  for (const auto& [name, places] : types) {
    if (places.size() < 2) continue;
    found.push_back(name + ":");
    for (const Place& place : places) found.back() += " " + place;
  }
  return found;
}

TEST(OneDefinition, NoNameStandsForTwoTypes) {
  const fs::path root = SINEW_SOURCE_DIR;
  Types types;
  int files = 0;
  for (const char* folder : {"sched", "comm", "kernels", "model", "bench", "tools", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string kind = entry.path().extension();
      if (kind != ".h" && kind != ".cc") continue;
      // The test programs of different folders never meet in one program.
      const std::string scope =
          std::string(folder) == "tests"
              ? (*std::next(fs::relative(entry.path(), root).begin())).string() + "/"
              : "";
      collect(entry.path(), scope, types);
      ++files;
    }
  }
  EXPECT_GT(files, 300);
  EXPECT_GT(types.size(), 200U);
  EXPECT_EQ(doubles(types), std::vector<std::string>());
}

TEST(OneDefinition, ASecondTypeOfANameIsFound) {
  const fs::path folder = fs::path(testing::TempDir()) / "one_definition";
  fs::create_directories(folder);
  const auto write = [&](const char* name, const char* text) {
    std::ofstream(folder / name) << text;
    return folder / name;
  };
  const fs::path a =
      write("a.h", "namespace x::y {\nstruct Lane {\n  int row;\n};\n}  // namespace x::y\n");
  const fs::path b = write(
      "b.cc",
      "namespace x::y {\nnamespace {\nstruct Own {\n};\n}  // namespace\nclass Lane : Base {\n"
      "};\n}  // namespace x::y\n");
  const fs::path c = write("c.cc",
                           "namespace x::y {\nnamespace {\nstruct Own {\n};\n}  // namespace\n"
                           "class Lane;\n}  // namespace x::y\n");
  Types types;
  for (const fs::path& path : {a, b, c}) collect(path, "", types);
  fs::remove_all(folder);
  const std::vector<std::string> found = doubles(types);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0], "x::y::Lane: " + a.string() + ":2 " + b.string() + ":6");
}

}  // namespace
}  // namespace sinew::test
