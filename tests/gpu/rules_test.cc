// Rules that keep every kernel executable on the twin and every ordering statement removable.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <string>

#include "tests/gpu/scenarios.h"
#include "tests/gpu/sources.h"

namespace sinew {
namespace {

using testing::SourceFile;

// Raw launches, raw shared memory and intrinsics that the host lacks would leave the twin behind.
constexpr std::string_view kForbidden[] = {
    "asm",    "__CUDA_ARCH__", "<<<",          "__shared__", "__ldg",        "__expf",
    "rsqrtf", "volatile",      "__activemask", "printf",     "__constant__", "__managed__"};

// What orders threads: its absence must be visible, so it stands in REQUIRED.
constexpr std::string_view kOrdering[] = {
    "__syncthreads",      "__syncwarp",           "async_copy_wait",
    "named_barrier_sync", "named_barrier_arrive", "mbarrier_wait",
    "mbarrier_arrive",    "store_release_sys",    "wgmma_wait"};

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool has_word(const std::string& line, std::string_view word) {
  for (std::size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool starts = at == 0 || !is_part_of_name(line[at - 1]) || !is_part_of_name(word.front());
    const bool ends =
        end == line.size() || !is_part_of_name(line[end]) || !is_part_of_name(word.back());
    if (starts && ends) return true;
  }
  return false;
}

template <typename Words>
bool has_any(const std::string& line, const Words& words) {
  for (const std::string_view word : words) {
    if (has_word(line, word)) return true;
  }
  return false;
}

std::string without_comment(const std::string& line) { return line.substr(0, line.find("//")); }

TEST(DeviceRules, PtxAndCompilerTestsLiveInTheGpuFolderOnly) {
  for (const SourceFile& file : testing::device_sources()) {
    if (file.name.starts_with("kernels/device/gpu/")) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(has_any(without_comment(file.lines[i]), kForbidden))
          << file.name << ":" << i + 1 << ": " << file.lines[i];
    }
  }
}

TEST(DeviceRules, EveryOrderingStatementIsRequired) {
  for (const SourceFile& file : testing::device_sources()) {
    if (file.name.starts_with("kernels/device/gpu/") && file.name != "kernels/device/gpu/collect.h")
      continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string code = without_comment(file.lines[i]);
      if (!has_any(code, kOrdering)) continue;
      EXPECT_NE(code.find("REQUIRED("), std::string::npos)
          << file.name << ":" << i + 1 << ": " << code;
    }
  }
}

// Of host code: what makes one stream wait for another.
TEST(DeviceRules, EveryWaitOfAStreamIsRequired) {
  int waits = 0;
  for (const SourceFile& file : testing::device_sources()) {
    if (!file.name.starts_with("comm/device/") || !file.name.ends_with(".cc")) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string code = without_comment(file.lines[i]);
      if (code.find(".wait(") == std::string::npos) continue;
      ++waits;
      EXPECT_NE(code.find("REQUIRED("), std::string::npos)
          << file.name << ":" << i + 1 << ": " << code;
    }
  }
  EXPECT_GE(waits, 4);
}

TEST(DeviceRules, RequiredNamesAreUniqueAndEveryFileHasAScenario) {
  std::map<std::string, std::string> seen;
  for (const SourceFile& file : testing::device_sources()) {
    if (!testing::names_required(file)) continue;
    bool found = false;
    for (const std::string& line : file.lines) {
      const std::string name = testing::required_name(line);
      if (name.empty()) continue;
      found = true;
      EXPECT_TRUE(seen.emplace(name, file.name).second)
          << name << " in " << file.name << " and " << seen[name];
    }
    if (!found) continue;
    bool covered = false;
    for (const auto& scenario : testing::kScenarios)
      covered = covered || scenario.file == file.name;
    EXPECT_TRUE(covered) << file.name << " has REQUIRED statements and no row in scenarios.h";
  }
}

}  // namespace
}  // namespace sinew
