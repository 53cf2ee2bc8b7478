#include "tools/json_lines.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "sched/base/error.h"

namespace sinew::tools {

struct JsonLines::Impl {
  std::string path;
  std::FILE* file = nullptr;
};

JsonLines::JsonLines(const std::string& path) : impl_(std::make_unique<Impl>()) {
  if (path.empty()) return;
  impl_->path = path;
  impl_->file = std::fopen(path.c_str(), "w");
  if (impl_->file == nullptr) {
    throw UsageError(
        fmt::format("--json '{}' cannot be written: {}; name a file in an existing folder", path,
                    std::strerror(errno)));
  }
}

JsonLines::~JsonLines() {
  if (impl_->file != nullptr) std::fclose(impl_->file);
}

void JsonLines::write(const JsonRecord& record) {
  if (impl_->file == nullptr) return;
  nlohmann::ordered_json line;
  for (const auto& [key, value] : record) {
    std::visit([&line, &name = key](const auto& held) { line[name] = held; }, value);
  }
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), impl_->file) != text.size() ||
      std::fflush(impl_->file) != 0) {
    throw Error(
        fmt::format("--json '{}' cannot be written: {}", impl_->path, std::strerror(errno)));
  }
}

}  // namespace sinew::tools
