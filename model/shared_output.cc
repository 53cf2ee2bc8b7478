#include "model/shared_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/descriptor.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

constexpr int kMode = 0644;

Descriptor open_file(const std::string& path, int flags) {
  return Descriptor(::open(path.c_str(), flags, kMode));
}

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw Error(fmt::format("file '{}' cannot be {}: {}", path, what, std::strerror(error)));
}

// 0, or errno.
int write_all(int descriptor, const std::string& text) {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::pwrite(descriptor, text.data() + written, text.size() - written,
                                   static_cast<off_t>(written));
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) written += static_cast<std::size_t>(count);
  }
  return 0;
}

}  // namespace

void create_shared_output(const std::string& path, const std::string& header,
                          std::int64_t size_bytes) {
  const Descriptor file = open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (file.value() < 0) fail(path, "created", errno);
  const int reserved = ::posix_fallocate(file.value(), 0, size_bytes);
  if (reserved != 0) fail(path, "given its size", reserved);
  const int written = write_all(file.value(), header);
  if (written != 0) fail(path, "written", written);
}

SharedOutput::SharedOutput(const std::string& path, std::int64_t size_bytes)
    : path_(path), size_bytes_(static_cast<std::size_t>(size_bytes)) {
  const Descriptor file = open_file(path, O_RDWR | O_CLOEXEC);
  if (file.value() < 0) fail(path, "opened", errno);
  struct stat status {};
  if (::fstat(file.value(), &status) != 0 || status.st_size != size_bytes)
    throw Error(
        fmt::format("file '{}' has not the {} bytes it was created with", path, size_bytes));
  memory_ = ::mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
  if (memory_ == MAP_FAILED) fail(path, "mapped", errno);
}

SharedOutput::~SharedOutput() { ::munmap(memory_, size_bytes_); }

void SharedOutput::flush() {
  if (::msync(memory_, size_bytes_, MS_SYNC) != 0) fail(path_, "flushed", errno);
}

void write_text(const std::string& path, const std::string& text) {
  const Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
  if (file.value() < 0) fail(path, "created", errno);
  const int written = write_all(file.value(), text);
  if (written != 0) fail(path, "written", written);
  if (::fsync(file.value()) != 0) fail(path, "flushed", errno);
}

void flush_directory(const std::string& path) {
  const Descriptor directory = open_file(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory.value() < 0 || ::fsync(directory.value()) != 0) fail(path, "flushed", errno);
}

}  // namespace sinew::model
