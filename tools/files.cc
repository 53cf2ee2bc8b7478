#include "tools/files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/passes/communication.h"

namespace sinew::tools {
namespace {

// Puts the file's name before what its parser says.
template <typename Parse>
auto parse_file(const std::string& option, const std::string& path, Parse&& parse) {
  const std::string text = read_text(option, path);
  try {
    return parse(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} '{}': {}", option, path, error.what()));
  }
}

bool is_pipeline(const std::string& text) {
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> words = fields(line.substr(0, line.find('#')));
    if (!words.empty()) return words[0] == "pipeline";
  }
  return false;
}

}  // namespace

std::string read_text(const std::string& option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (std::filesystem::is_directory(path) || !file || !(text << file.rdbuf())) {
    throw UsageError(fmt::format("{} '{}' cannot be read: name an existing file that is not empty",
                                 option, path));
  }
  return text.str();
}

void write_text(const std::string& option, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    throw UsageError(fmt::format("{} '{}' cannot be written: {}; name a file in an existing folder",
                                 option, path, std::strerror(errno)));
  }
}

AnySchedule read_schedule(const std::string& option, const std::string& path) {
  return parse_file(option, path, [](const std::string& text) -> AnySchedule {
    if (is_pipeline(text)) return sched::parse_pipe_schedule(text);
    return sched::parse_schedule(text);
  });
}

sched::Topology read_topology(const std::string& option, const std::string& path) {
  return parse_file(option, path,
                    [](const std::string& text) { return sched::parse_topology(text); });
}

}  // namespace sinew::tools
