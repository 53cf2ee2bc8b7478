// Output: a file that a command writes and an option names. It is looked at before any work is
// done, written aside as PATH.partial, and takes its name whole when all of it is on disk: bad
// input and runs that fail leave what was there before.
//
// Never does: make folders. Threads: one object, one thread.
// Invariants
//   1. Nothing that is created stays before the first write() or keep().
//   2. PATH changes in keep() only, unless it names a device, a pipe or what a standard stream goes
//      to (/dev/stdout): those are written as they are.
//   3. What a run wrote before it failed stays in PATH.partial, unless the disk was full. A file of
//      that name that is already there stays what it is: the next is PATH.partial2.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace sinew::tools {

// Why no file can be created in a folder that exists; empty when one can: it creates one and
// removes it.
[[nodiscard]] std::string why_unwritable(const std::string& folder);

class Output {
 public:
  // Empty path: nothing is wanted, and write() and keep() do nothing. Throws UsageError naming the
  // option, the path and the reason when the path cannot become a file.
  Output(std::string option, std::string path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  [[nodiscard]] bool wanted() const { return !path_.empty(); }
  void write(std::string_view text);  // throws Error when the disk is full
  void flush();
  void keep();  // once, after the last write(); throws Error
  // write() and keep().
  void keep(std::string_view text);

 private:
  void open();
  [[noreturn]] void fail();

  std::string option_;
  std::string path_;    // of the file itself where a link was named
  std::string opened_;  // what is written until keep()
  std::FILE* file_ = nullptr;
};

// Throws UsageError when two of them name one file: one would replace the other.
void require_different(const std::string& option, const std::string& path,
                       const std::string& other_option, const std::string& other_path);

}  // namespace sinew::tools
