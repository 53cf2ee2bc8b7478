#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "sched/base/error.h"

namespace sinew::model {

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    throw UsageError("file '" + path + "' cannot be opened: " + std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  void* memory = MAP_FAILED;
  if (regular && status.st_size > 0) {
    memory = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE,
                    descriptor, 0);
  }
  const int error = errno;
  ::close(descriptor);
  if (!regular) throw UsageError("'" + path + "' is not a regular file");
  if (status.st_size == 0) return;
  if (memory == MAP_FAILED)
    throw Error("file '" + path + "' cannot be mapped: " + std::strerror(error));
  bytes_ = {static_cast<const std::byte*>(memory), static_cast<std::size_t>(status.st_size)};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace sinew::model
