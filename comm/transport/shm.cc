// shm: ranks are processes of one host. A block is a memfd that peers open through /proc/PID/fd, so
// that nothing is ever visible in a file system; where that is denied (another user or PID
// namespace) it is a file in /dev/shm, mode 0600, unlinked as soon as every rank has mapped it or
// failed to.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "comm/error.h"
#include "comm/memory.h"
#include "sched/base/units.h"

#include <fmt/core.h>

namespace sinew::comm {

namespace {

enum class Place { kMemfd, kFile };

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE, which the C library's headers may not have

struct Segment {
  int fd = -1;
  std::string path;    // how a peer opens it
  std::string error;   // empty: usable
  bool named = false;  // visible in /dev/shm

  // Every way out of the setup removes the name, also a peer's failure.
  ~Segment() {
    if (named) unlink(path.c_str());
    if (fd >= 0) close(fd);
  }
};

std::string size_text(std::size_t size_bytes) {
  return format_bytes(static_cast<std::int64_t>(size_bytes));
}

std::string reserve_error(Place place, std::size_t size_bytes, int code) {
  if (place == Place::kMemfd) {
    return fmt::format(
        "cannot reserve {} of shared memory: {}; free memory or raise the memory limit of this "
        "cgroup",
        size_text(size_bytes), std::strerror(code));
  }
  struct statvfs file_system {};
  std::string state = "its size is unknown";
  if (statvfs("/dev/shm", &file_system) == 0) {
    state =
        fmt::format("it holds {}, {} free", size_text(file_system.f_blocks * file_system.f_frsize),
                    size_text(file_system.f_bavail * file_system.f_frsize));
  }
  return fmt::format(
      "cannot reserve {} in /dev/shm ({}): {}; enlarge it: mount -o remount,size=1G /dev/shm, or "
      "docker run --shm-size=1g",
      size_text(size_bytes), state, std::strerror(code));
}

// Where the processor can map a large page, address and offset in the file agree in all bits below
// its size. Null: take any address.
void* huge_aligned(std::size_t size_bytes) {
  if (size_bytes < kHugePage) return nullptr;
  const std::size_t reserved = size_bytes + kHugePage;
  void* room =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(room);
  const std::uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  munmap(room, reserved);
  return reinterpret_cast<void*>(aligned);
}

// Large pages make a sequential pass over shared memory 1.6 times as fast (read of 64 MiB on one
// core of an EPYC of the Zen 4 kind under a hypervisor: 18 against 31 GB/s), and reserving it four
// times; shared memory is not given them by itself. Whole ones only: a byte in each, then the rest
// around it. Where there are none, or the kernel is older than 6.1, nothing is lost but that.
void take_huge_pages(int fd, std::size_t size_bytes) {
  const std::size_t whole = size_bytes / kHugePage * kHugePage;
  if (whole == 0 || ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) return;
  for (std::size_t page = 0; page < whole; page += kHugePage) {
    if (pwrite(fd, "", 1, static_cast<off_t>(page)) != 1) return;
  }
  void* data = mmap(huge_aligned(whole), whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return;
  madvise(data, whole, kMadviseCollapse);
  munmap(data, whole);
}

// Memory and what it is swapped to.
std::size_t machine_bytes() {
  struct sysinfo info {};
  sysinfo(&info);
  return (std::size_t{info.totalram} + info.totalswap) * info.mem_unit;
}

// Reserves every page now: a full file system is an error here instead of SIGBUS at some later
// store.
void reserve(Segment& segment, Place place, std::size_t size_bytes) {
  // Of more than the machine has, the kernel would first take all there is, and kill somebody.
  if (size_bytes > machine_bytes()) {
    segment.error = reserve_error(place, size_bytes, ENOMEM);
    return;
  }
  take_huge_pages(segment.fd, size_bytes);
  const int code = posix_fallocate(segment.fd, 0, static_cast<off_t>(size_bytes));
  if (code != 0) segment.error = reserve_error(place, size_bytes, code);
}

void create(Segment& segment, Place place, std::size_t size_bytes) {
  if (place == Place::kMemfd) {
    segment.fd = memfd_create("sinew", MFD_CLOEXEC);
    if (segment.fd < 0) {
      segment.error = fmt::format("memfd_create: {}", std::strerror(errno));
      return;
    }
    fchmod(segment.fd, 0600);
    segment.path = fmt::format("/proc/{}/fd/{}", getpid(), segment.fd);
  } else {
    std::random_device random;
    segment.path = fmt::format("/dev/shm/sinew-{}-{:08x}{:08x}", getpid(), random(), random());
    segment.fd = open(segment.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (segment.fd < 0) {
      segment.error = fmt::format("cannot create {}: {}", segment.path, std::strerror(errno));
      return;
    }
    segment.named = true;
  }
  reserve(segment, place, size_bytes);
}

void unmap(std::byte* data, std::size_t size_bytes, void*) { munmap(data, size_bytes); }

// What a rank tells its peers about its block, and then about its success in mapping theirs.
struct Offer {
  std::uint64_t size_bytes;
  std::uint64_t device;  // with inode: which file the peer must find at that path
  std::uint64_t inode;
  char path[64];
  char error[320];
};

void set_text(char* target, std::size_t size, const std::string& text) {
  std::snprintf(target, size, "%s", text.c_str());
}

// The hint is taken unless another thread mapped something there meanwhile; then pages are small.
Mapping map(int fd, std::size_t size_bytes, std::string& error) {
  void* data = mmap(huge_aligned(size_bytes), size_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_POPULATE, fd, 0);
  if (data == MAP_FAILED) {
    error = fmt::format("cannot map {} of shared memory: {}", size_text(size_bytes),
                        std::strerror(errno));
    return {};
  }
  return {static_cast<std::byte*>(data), size_bytes, nullptr, unmap};
}

// A peer on another host, or behind another PID namespace, has another file or none at that path.
Mapping map_peer(const Offer& offer, std::string& error) {
  const int fd = open(offer.path, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    error = fmt::format("cannot open a peer's {}: {}", offer.path, std::strerror(errno));
    return {};
  }
  struct stat found {};
  Mapping mapping;
  if (fstat(fd, &found) != 0 || found.st_dev != offer.device || found.st_ino != offer.inode) {
    error = fmt::format("{} is not the peer's: not one host, or separate containers", offer.path);
  } else {
    mapping = map(fd, offer.size_bytes, error);
  }
  close(fd);
  return mapping;
}

class HostMemory final : public Memory {
 public:
  [[nodiscard]] std::string_view name() const override { return "shm"; }
  [[nodiscard]] bool one_address_space() const override { return false; }

  [[nodiscard]] std::vector<Mapping> share(Bootstrap& bootstrap, std::size_t size_bytes,
                                           const std::vector<int>& hosts) override {
    const Ask ask{bootstrap, size_bytes, hosts};
    std::string first_error;
    std::vector<Mapping> views;
    if (try_share(ask, Place::kMemfd, views, first_error)) return views;
    std::string error;
    if (try_share(ask, Place::kFile, views, error)) return views;
    throw Error(Cause::kResource, bootstrap.rank(), -1,
                fmt::format("setup: {} (and before that: {})", error, first_error));
  }

 private:
  struct Ask {
    Bootstrap& bootstrap;
    std::size_t size_bytes;
    const std::vector<int>& hosts;
    [[nodiscard]] bool on_my_host(int peer) const {
      return hosts[static_cast<std::size_t>(peer)] ==
             hosts[static_cast<std::size_t>(bootstrap.rank())];
    }
  };

  // True on all ranks or false on all.
  static bool try_share(const Ask& ask, Place place, std::vector<Mapping>& views,
                        std::string& error) {
    Bootstrap& bootstrap = ask.bootstrap;
    const std::size_t size_bytes = ask.size_bytes;
    Segment own;
    Offer offer{};
    offer.size_bytes = size_bytes;
    if (size_bytes > 0) create(own, place, size_bytes);
    struct stat status {};
    if (own.fd >= 0 && fstat(own.fd, &status) == 0) {
      offer.device = status.st_dev;
      offer.inode = status.st_ino;
    }
    set_text(offer.path, sizeof offer.path, own.path);
    set_text(offer.error, sizeof offer.error, own.error);
    const std::vector<Offer> offers = bootstrap.exchange(offer);
    bool usable = !report(bootstrap, offers, error);
    views.clear();
    for (int peer = 0; usable && peer < bootstrap.world(); ++peer) {
      const Offer& theirs = offers[static_cast<std::size_t>(peer)];
      std::string reason;
      if (theirs.size_bytes == 0 || !ask.on_my_host(peer)) {
        views.emplace_back();
      } else if (peer == bootstrap.rank()) {
        views.push_back(map(own.fd, size_bytes, reason));
      } else {
        views.push_back(map_peer(theirs, reason));
      }
      if (!reason.empty()) set_text(offer.error, sizeof offer.error, reason);
    }
    // Also the signal that every rank has opened what it could: the name may go.
    usable = !report(bootstrap, bootstrap.exchange(offer), error);
    if (!usable) views.clear();
    return usable;
  }

  static bool report(const Bootstrap& bootstrap, const std::vector<Offer>& offers,
                     std::string& error) {
    for (int peer = 0; peer < bootstrap.world(); ++peer) {
      const char* text = offers[static_cast<std::size_t>(peer)].error;
      if (text[0] == '\0') continue;
      error = fmt::format("rank {}: {}", peer, text);
      return true;
    }
    return false;
  }
};

}  // namespace

std::unique_ptr<Memory> host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace sinew::comm
