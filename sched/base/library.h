// Library: a shared library that is looked for when something first asks for it, so that a machine
// without it is a normal one and a process that does not use it carries nothing of it.
//
// Never does: unload. What such libraries hook, they hook for good.
// Threads: any, after construction.
#pragma once

#include <string>
#include <string_view>

namespace sinew {

class Library {
 public:
  // file: as the loader finds it, "libucp.so.0".
  explicit Library(const char* file);
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Sets *function to the function of this name, or notes that there is none.
  template <typename Function>
  void find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(find_symbol(name));
  }
  // Why it cannot be used, in one line; empty: all that was looked for was found.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* find_symbol(const char* name);

  std::string file_;
  void* handle_ = nullptr;
  std::string missing_;
};

}  // namespace sinew
