#include "kernels/device/twin/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels/device/twin/fiber.h"

namespace sinew::twin {

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;
constexpr std::uint64_t kMagic = 0x53494e4557545749ULL;

// Lies in a page of its own, two pages before the first data page: the page between them is the
// guard.
struct Allocation {
  std::uint64_t magic;
  int file;
  std::size_t size_bytes;
  std::size_t data_pages_bytes;
};

struct Exported {
  std::uint64_t magic;
  std::int64_t process;
  std::int64_t file;
  std::uint64_t inode;
  std::uint64_t pages_bytes;
  std::uint64_t offset;
};
static_assert(sizeof(Exported) <= sizeof(device::IpcHandle));

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

char* first_page(const void* data) {
  return reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(data) &
                                 ~std::uintptr_t{kPage - 1});
}

Allocation& allocation_of(const void* data) {
  return *reinterpret_cast<Allocation*>(first_page(data) - 2 * kPage);
}

[[noreturn]] void throw_system(const std::string& what) {
  throw device::Error("device twin: " + what + ": " + std::strerror(errno));
}

bool untouched(const char* begin, const char* end) {
  for (const char* byte = begin; byte < end; ++byte) {
    if (*byte != static_cast<char>(0xff)) return false;
  }
  return true;
}

}  // namespace

void* allocate_pages(std::size_t size_bytes) {
  if (size_bytes > kMemoryBytes) {
    throw device::Error("device twin: allocating " + std::to_string(size_bytes) +
                        " bytes: out of memory, there are " + std::to_string(kMemoryBytes));
  }
  const std::size_t rounded = round_up(size_bytes == 0 ? 1 : size_bytes, kAlignment);
  const std::size_t pages = round_up(rounded, kPage);
  const int file = memfd_create("sinew-twin", MFD_CLOEXEC);
  if (file < 0) throw_system("cannot create a memory file");
  // posix_fallocate reserves the space, so that a full machine is an error here and not a fault
  // later.
  const int full = posix_fallocate(file, 0, static_cast<off_t>(pages));
  if (full != 0) {
    close(file);
    errno = full;
    throw_system("cannot reserve " + std::to_string(pages) + " bytes");
  }
  void* mapped = mmap(nullptr, pages + 3 * kPage, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    close(file);
    throw_system("no address space for " + std::to_string(pages) + " bytes");
  }
  char* base = static_cast<char*>(mapped);
  if (mprotect(base, kPage, PROT_READ | PROT_WRITE) != 0 ||
      mmap(base + 2 * kPage, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
          MAP_FAILED) {
    close(file);
    munmap(mapped, pages + 3 * kPage);
    throw_system("cannot map " + std::to_string(pages) + " bytes");
  }
  std::memset(base + 2 * kPage, 0xff, pages);
  char* data = base + 2 * kPage + (pages - rounded);
  allocation_of(data) = {kMagic, file, size_bytes, pages};
  poison(base + 2 * kPage, pages - rounded);
  poison(data + size_bytes, rounded - size_bytes);
  return data;
}

void free_pages(void* data) noexcept {
  const Allocation allocation = allocation_of(data);
  char* base = first_page(data);
  const char* bytes = static_cast<const char*>(data);
  unpoison(base, allocation.data_pages_bytes);
  if (allocation.magic != kMagic || !untouched(base, bytes) ||
      !untouched(bytes + allocation.size_bytes, base + allocation.data_pages_bytes)) {
    std::fprintf(stderr, "device twin: bytes around an allocation of %zu bytes were overwritten\n",
                 allocation.size_bytes);
    std::abort();
  }
  close(allocation.file);
  munmap(base - 2 * kPage, allocation.data_pages_bytes + 3 * kPage);
}

void protect_pages(const void* data, Touch touch) noexcept {
  const Allocation& allocation = allocation_of(data);
  const int rights = touch == Touch::kAllowed ? PROT_READ | PROT_WRITE : PROT_NONE;
  mprotect(first_page(data), allocation.data_pages_bytes, rights);
}

device::IpcHandle export_pages(const void* data) {
  const Allocation& allocation = allocation_of(data);
  struct stat status {};
  if (fstat(allocation.file, &status) != 0) throw_system("cannot name memory to another process");
  const Exported exported = {
      kMagic,
      getpid(),
      allocation.file,
      status.st_ino,
      allocation.data_pages_bytes,
      static_cast<std::uint64_t>(static_cast<const char*>(data) - first_page(data))};
  device::IpcHandle handle;
  std::memcpy(handle.bytes.data(), &exported, sizeof exported);
  return handle;
}

void* import_pages(const device::IpcHandle& handle, std::size_t& size_bytes) {
  Exported exported;
  std::memcpy(&exported, handle.bytes.data(), sizeof exported);
  if (exported.magic != kMagic) throw device::Error("device twin: the bytes are no memory handle");
  if (exported.process == getpid()) {
    throw device::Error(
        "device twin: a memory handle is for other processes; use the pointer itself");
  }
  const std::string path =
      "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0)
    throw_system("cannot open the memory of process " + std::to_string(exported.process));
  struct stat status {};
  const bool same = fstat(file, &status) == 0 && status.st_ino == exported.inode;
  void* pages =
      same ? mmap(nullptr, exported.pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
           : MAP_FAILED;
  close(file);
  if (!same)
    throw device::Error("device twin: process " + std::to_string(exported.process) +
                        " has freed this memory");
  if (pages == MAP_FAILED) throw_system("cannot map the memory of another process");
  size_bytes = exported.pages_bytes;
  return static_cast<char*>(pages) + exported.offset;
}

void unmap_pages(void* data, std::size_t size_bytes) noexcept {
  munmap(first_page(data), size_bytes);
}

}  // namespace sinew::twin
