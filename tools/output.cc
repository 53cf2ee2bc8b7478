#include "tools/output.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "model/aside.h"
#include "sched/base/error.h"

namespace sinew::tools {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// The standard stream that goes to this file; -1: none does.
int stream_to(const std::string& path) {
  struct stat named {};
  if (stat(path.c_str(), &named) != 0) return -1;
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat opened {};
    if (fstat(descriptor, &opened) == 0 && opened.st_dev == named.st_dev &&
        opened.st_ino == named.st_ino)
      return descriptor;
  }
  return -1;
}

// A file or nothing at all takes its name at the end; a device or a pipe has nothing to replace,
// and neither has a file that takes what is printed.
bool is_replaced(const std::string& path) {
  if (stream_to(path) >= 0) return false;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return !fs::exists(status) || fs::is_regular_file(status);
}

// Empty when the path can become a file, else why not.
std::string refusal(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) return "is a folder: name a file";
  constexpr const char* kWhere = "name a file in an existing folder that you may write";
  const auto because = [&](const std::string& why) {
    return fmt::format("cannot be written: {}; {}", why, kWhere);
  };
  if (fs::exists(status) && access(path.c_str(), W_OK) != 0) return because(std::strerror(errno));
  if (!is_replaced(path)) return {};
  const fs::path folder = folder_of(path);
  if (!fs::is_directory(folder, error))
    return because(fmt::format("there is no folder '{}'", folder.string()));
  const std::string unwritable = why_unwritable(folder.string());
  if (!unwritable.empty())
    return because(fmt::format("folder '{}': {}", folder.string(), unwritable));
  // A name that is too long, or one that ends with a slash, is found by asking for it.
  if (!fs::exists(status) && status.type() == fs::file_type::none) return because(error.message());
  if (path.back() == '/') return because("there is no such folder");
  return {};
}

}  // namespace

std::string why_unwritable(const std::string& folder) {
  // Only creating a file tells: root may write everywhere by its rights, and yet neither in /proc
  // nor in a folder of another machine that keeps root out.
  std::string name = folder + "/.sinew-XXXXXX";
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) return std::strerror(errno);
  close(descriptor);
  unlink(name.c_str());
  return {};
}

Output::Output(std::string option, std::string path)
    : option_(std::move(option)), path_(std::move(path)) {
  if (path_.empty()) return;
  const std::string why = refusal(path_);
  if (!why.empty()) throw UsageError(fmt::format("{} '{}' {}", option_, path_, why));
  path_ = model::followed(path_);
}

Output::~Output() {
  if (file_ != nullptr) std::fclose(file_);
}

void Output::open() {
  if (file_ != nullptr) return;
  const std::string aside = is_replaced(path_) ? model::create_aside(path_) : path_;
  opened_ = aside.empty() ? path_ : aside;  // empty: there is nothing aside
  const int stream = stream_to(opened_);
  if (stream >= 0) {
    std::fflush(stdout);
    file_ = fdopen(dup(stream), "w");  // behind what was printed, and before what comes
  } else if (!aside.empty()) {
    file_ = std::fopen(aside.c_str(), "w");
  }
  if (file_ == nullptr) fail();
}

void Output::fail() {
  const std::string why = std::strerror(errno);
  if (file_ != nullptr) std::fclose(std::exchange(file_, nullptr));
  std::error_code ignored;
  if (opened_ != path_) fs::remove(opened_, ignored);
  throw Error(fmt::format("{} '{}' cannot be written: {}", option_, path_, why));
}

void Output::write(std::string_view text) {
  if (!wanted()) return;
  open();
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail();
}

void Output::flush() {
  if (file_ != nullptr && std::fflush(file_) != 0) fail();
}

void Output::keep() {
  if (!wanted()) return;
  open();
  // What the disk has not taken by now is known here, before the file gets its name.
  if (std::fflush(file_) != 0) fail();
  if (opened_ != path_ && fsync(fileno(file_)) != 0) fail();
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail();
  if (opened_ != path_ && std::rename(opened_.c_str(), path_.c_str()) != 0) fail();
  path_.clear();
}

void Output::keep(std::string_view text) {
  write(text);
  keep();
}

void require_different(const std::string& option, const std::string& path,
                       const std::string& other_option, const std::string& other_path) {
  if (path.empty() || other_path.empty() || !is_replaced(path)) return;
  std::error_code ignored;
  const auto whole = [&](const std::string& name) {
    return fs::weakly_canonical(fs::absolute(name, ignored), ignored);
  };
  if (whole(path) != whole(other_path)) return;
  throw UsageError(fmt::format("{} and {} both name '{}': one would replace the other", option,
                               other_option, path));
}

}  // namespace sinew::tools
