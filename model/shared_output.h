// SharedOutput: a file of known size that all ranks write their parts of into.
//
// Threads: one rank, one thread; ranks write disjoint bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sinew::model {

// Creates the file with this beginning and reserves all its bytes, so that a full disk is an Error
// here rather than a signal at a store. By one rank, before the others open it.
void create_shared_output(const std::string& path, const std::string& header,
                          std::int64_t size_bytes);

class SharedOutput {
 public:
  // Opens and maps a created file; throws Error when it cannot be, as on a host that does not share
  // the directory.
  SharedOutput(const std::string& path, std::int64_t size_bytes);
  ~SharedOutput();
  SharedOutput(const SharedOutput&) = delete;
  SharedOutput& operator=(const SharedOutput&) = delete;

  [[nodiscard]] std::byte* bytes() { return static_cast<std::byte*>(memory_); }
  // What was written has reached the disk, else Error.
  void flush();

 private:
  std::string path_;
  std::size_t size_bytes_;
  void* memory_;
};

// A small text file, whole on the disk when this returns, else Error.
void write_text(const std::string& path, const std::string& text);

// Makes what was renamed in a directory survive a loss of power.
void flush_directory(const std::string& path);

}  // namespace sinew::model
