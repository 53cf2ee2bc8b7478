// MappedFile: a whole file as read-only memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace sinew::model {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws UsageError in plain words when the file is missing, a directory or unreadable. An empty
  // file is legal.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace sinew::model
