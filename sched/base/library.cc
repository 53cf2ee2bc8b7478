#include "sched/base/library.h"

#include <dlfcn.h>

namespace sinew {

Library::Library(const char* file) : file_(file), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* why = dlerror();
  missing_ = "cannot be loaded: " + std::string(why != nullptr ? why : file);
}

void* Library::find_symbol(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* symbol = dlsym(handle_, name);
  if (symbol == nullptr && missing_.empty())
    missing_ = "cannot be used: " + file_ + " has no " + name + "; install a newer one";
  return symbol;
}

}  // namespace sinew
