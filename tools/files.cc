#include "tools/files.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/base/units.h"
#include "sched/pipeline/verify.h"

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

// A schedule of a thousand ranks takes a part of this; a device may have no end.
constexpr std::int64_t kTextMaxBytes = std::int64_t{256} << 20;

bool is_pipeline(const std::string& text) {
  for (const std::string_view line : text_lines(text)) {
    const std::vector<std::string_view> words = fields(line.substr(0, line.find('#')));
    if (!words.empty()) return words[0] == "pipeline";
  }
  return false;
}

}  // namespace

std::string read_text(const std::string& option, const std::string& path) {
  const auto refuse = [&](int error) {
    throw UsageError(fmt::format("{} '{}' cannot be read: {}", option, path, std::strerror(error)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) refuse(errno);
  std::string text;
  std::array<char, 1 << 16> buffer = {};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    text.append(buffer.data(), got);
    if (static_cast<std::int64_t>(text.size()) > kTextMaxBytes) {
      throw UsageError(fmt::format("{} '{}' is no text that people write: it is larger than {}",
                                   option, path, format_bytes(kTextMaxBytes)));
    }
  }
  if (std::ferror(file.get()) != 0) refuse(errno);
  return text;
}

AnySchedule read_schedule(const std::string& option, const std::string& path) {
  return parse_file(option, path, [](const std::string& text) -> AnySchedule {
    if (is_pipeline(text)) return sched::with_messages(sched::parse_pipe_schedule(text));
    return sched::parse_schedule(text);
  });
}

sched::Topology read_topology(const std::string& option, const std::string& path) {
  return parse_file(option, path, [](const std::string& text) {
    sched::Topology topology = sched::parse_topology(text);
    if (const auto pair = topology.unlinked()) {
      throw UsageError(
          fmt::format("no link from rank {} to rank {}; legal: one for each pair, as 'link * <-> * "
                      "latency 2us bandwidth 12GB/s'",
                      pair->first, pair->second));
    }
    return topology;
  });
}

}  // namespace sinew::tools
