// JsonLines: records written one JSON object a line, keys in the order given.
//
// Never does: read. Threads: one object, one thread.
// Invariant: a line is flushed as soon as it is written, into FILE.partial; the file has its name
// after keep() (output.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/output.h"

namespace sinew::tools {

class JsonRecord {
 public:
  // A value that does not exist, or a number that is not finite, is null.
  JsonRecord& add(std::string_view key, std::int64_t value);
  JsonRecord& add(std::string_view key, int value) { return add(key, std::int64_t{value}); }
  JsonRecord& add(std::string_view key, double value);
  JsonRecord& add(std::string_view key, std::optional<double> value);
  JsonRecord& add(std::string_view key, bool value);
  JsonRecord& add(std::string_view key, std::string_view value);
  JsonRecord& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  JsonRecord& add(std::string_view key, const std::string& value) {
    return add(key, std::string_view(value));
  }
  JsonRecord& add(std::string_view key, std::span<const std::string> values);
  [[nodiscard]] std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonRecord& add_text(std::string_view key, const std::string& value);
  std::string members_;
};

class JsonLines {
 public:
  // Empty path: nothing is written. Throws UsageError when the path cannot become a file.
  explicit JsonLines(const std::string& path) : output_("--json", path) {}

  void write(const JsonRecord& record);  // throws Error when the disk is full
  void keep() { output_.keep(); }        // once, after the last line

 private:
  Output output_;
};

}  // namespace sinew::tools
