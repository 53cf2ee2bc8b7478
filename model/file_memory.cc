#include "model/file_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "model/quote.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

[[noreturn]] void fail(const std::string& folder, const char* what, int error) {
  throw Error(fmt::format("a file of offloaded memory in {} cannot be {}: {}", quoted(folder), what,
                          std::strerror(error)));
}

// A file without a name. Not every file system makes one at once; there the name goes right after.
int open_nameless(const std::string& folder) {
  constexpr int kMode = 0600;
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
    return descriptor;
  std::string name = folder + "/sinew-offload-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

std::byte* map_file_memory(const std::string& folder, std::size_t size_bytes) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw UsageError(
        fmt::format("offload {}: there is no such folder; legal: an existing folder on a disk with "
                    "room for the optimizer's state",
                    quoted(folder)));
  }
  const int descriptor = open_nameless(folder);
  if (descriptor < 0 && (errno == EACCES || errno == EROFS)) {
    throw UsageError(fmt::format("offload {}: {}; legal: a folder that you may write",
                                 quoted(folder), std::strerror(errno)));
  }
  if (descriptor < 0) fail(folder, "created", errno);
  const int reserved = ::posix_fallocate(descriptor, 0, static_cast<off_t>(size_bytes));
  void* memory = MAP_FAILED;
  if (reserved == 0)
    memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = reserved != 0 ? reserved : errno;
  ::close(descriptor);  // the mapping keeps the file
  if (memory == MAP_FAILED) fail(folder, reserved != 0 ? "given its size" : "mapped", error);
  return static_cast<std::byte*>(memory);
}

void unmap_file_memory(std::byte* memory, std::size_t size_bytes) { ::munmap(memory, size_bytes); }

}  // namespace sinew::model
