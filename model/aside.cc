#include "model/aside.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace sinew::model {

namespace fs = std::filesystem;

std::string followed(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_symlink(path, ignored) || !fs::exists(path, ignored)) return path;
  // What /dev/stdout leads to may be a pipe, which has no name.
  const fs::path target = fs::canonical(path, ignored);
  return target.empty() ? path : target.string();
}

std::string create_aside(const std::string& path) {
  for (int number = 1;; ++number) {
    std::string aside = path + ".partial" + (number == 1 ? "" : std::to_string(number));
    const int descriptor = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) {
      ::close(descriptor);
      return aside;
    }
    if (errno != EEXIST) return {};
  }
}

}  // namespace sinew::model
