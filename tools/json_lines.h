// JsonLines: records written one JSON object a line, keys in the order given.
//
// Never does: read. Threads: one object, one thread.
// Invariant: a line is flushed as soon as it is written.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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
  // Empty path: write() does nothing. Throws UsageError when the file cannot be opened.
  explicit JsonLines(const std::string& path);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  void write(const JsonRecord& record);  // throws Error when the disk is full

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace sinew::tools
