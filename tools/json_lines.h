// JsonLines: records written one JSON object a line, keys in the order given.
//
// Never does: read. Threads: one object, one thread.
// Invariant: a line is flushed as soon as it is written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace sinew::tools {

using JsonValue = std::variant<std::int64_t, double, bool, std::string, std::vector<double>,
                               std::vector<std::string>>;
using JsonRecord = std::vector<std::pair<std::string, JsonValue>>;

class JsonLines {
 public:
  // Empty path: write() does nothing. Throws UsageError when the file cannot be opened.
  explicit JsonLines(const std::string& path);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  void write(const JsonRecord& record);  // throws Error when the disk is full

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sinew::tools
