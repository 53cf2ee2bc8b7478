#include "tools/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
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

// A file or nothing at all takes its name at the end; a device or a pipe has nothing to replace.
bool is_replaced(const std::string& path) {
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
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return because(fmt::format("folder '{}': {}", folder.string(), std::strerror(errno)));
  // A name that is too long, or one that ends with a slash, is found by asking for it.
  if (!fs::exists(status) && status.type() == fs::file_type::none) return because(error.message());
  if (path.back() == '/') return because("there is no such folder");
  return {};
}

}  // namespace

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
  if (!aside.empty()) file_ = std::fopen(aside.c_str(), "w");
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
