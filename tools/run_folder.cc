#include "tools/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "model/checkpoint.h"
#include "sched/base/error.h"
#include "tools/output.h"

namespace sinew::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError(
      fmt::format("--out '{}' cannot be written: {}; name a folder to write into", path, why));
}

bool goes_on(const std::string& resume, const std::string& path) {
  if (resume.empty()) return false;
  std::error_code ignored;
  const fs::path here = fs::weakly_canonical(path, ignored);
  const fs::path from = fs::weakly_canonical(resume, ignored);
  if (from == here) return true;
  if (from.parent_path() != here) return false;
  // One that was named, of several: what comes after it would look as if it were this run's.
  const std::int64_t step =
      model::open_checkpoint(resume, model::CheckpointUse::kResume).state.step;
  const std::optional<std::int64_t> last = model::highest_step(path);
  if (last > step) {
    throw UsageError(
        fmt::format("--out '{}' holds checkpoints up to step {} and --resume is of step {}: those "
                    "between would be of another run; name another folder, or remove them",
                    path, *last, step));
  }
  return true;
}

}  // namespace

// The lock comes first: what another run writes until it ends is seen.
RunFolder::RunFolder(const std::string& path, const std::string& resume) : RunFolder(path) {
  std::error_code error;
  if (!path.empty() && fs::exists(fs::path(path) / "latest", error) && !goes_on(resume, path)) {
    throw UsageError(fmt::format(
        "--out '{}' holds the checkpoints of a run: go on with --resume {}, or name another folder",
        path, path));
  }
}

RunFolder::RunFolder(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  fs::create_directories(path, error);
  if (error) refuse(path, error.message());
  if (!fs::is_directory(path, error)) refuse(path, "it is no folder");
  const std::string unwritable = why_unwritable(path);
  if (!unwritable.empty()) refuse(path, unwritable);
  descriptor_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) refuse(path, std::strerror(errno));
  // File systems without locks let two runs pass; nothing else depends on it.
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor_);
    throw UsageError(
        fmt::format("--out '{}' is being written by another run: name another folder", path));
  }
}

RunFolder::~RunFolder() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace sinew::tools
