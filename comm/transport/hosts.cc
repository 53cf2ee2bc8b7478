// hosts: which ranks can open each other's memory. Every rank puts random words where a peer of the
// same host can read them, as HostMemory puts its blocks, and looks for those of the others: a path
// that exists may be another file on another host or behind another PID namespace.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>

#include <fmt/core.h>

#include "comm/memory.h"
#include "comm/transport/choice.h"

namespace sinew::comm {

namespace {

struct Sign {
  char path[64];
  std::uint64_t words[2];
};

// A memfd, or a file in /dev/shm that is gone again when this object is.
class Post {
 public:
  explicit Post(bool named) : named_(named) {
    std::random_device random;
    for (std::uint64_t& word : sign_.words) word = std::uint64_t{random()} << 32 | random();
    const std::string path =
        named ? fmt::format("/dev/shm/sinew-{}-{:016x}", getpid(), sign_.words[0]) : "";
    fd_ = named ? open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                : memfd_create("sinew-sign", MFD_CLOEXEC);
    if (fd_ < 0 || write(fd_, sign_.words, sizeof sign_.words) != sizeof sign_.words) return;
    std::snprintf(sign_.path, sizeof sign_.path, "%s",
                  named ? path.c_str() : fmt::format("/proc/{}/fd/{}", getpid(), fd_).c_str());
  }
  ~Post() {
    if (fd_ < 0) return;
    if (named_) unlink(sign_.path);
    close(fd_);
  }
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;
  [[nodiscard]] const Sign& sign() const { return sign_; }

 private:
  bool named_;
  int fd_ = -1;
  Sign sign_{};
};

bool can_read(const Sign& sign) {
  const int fd = open(sign.path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  std::uint64_t words[2] = {};
  const bool whole = pread(fd, words, sizeof words, 0) == sizeof words;
  close(fd);
  return whole && words[0] == sign.words[0] && words[1] == sign.words[1];
}

// A rank joins the first host all of whose ranks it reads and is read by.
std::vector<int> group(const std::vector<std::uint8_t>& reads, int world) {
  const auto mutual = [&](int left, int right) {
    const auto at = [&](int from, int to) {
      return reads[static_cast<std::size_t>(from) * static_cast<std::size_t>(world) +
                   static_cast<std::size_t>(to)] != 0;
    };
    return at(left, right) && at(right, left);
  };
  std::vector<int> hosts;
  for (int rank = 0; rank < world; ++rank) {
    int host = 0;
    for (; host < rank; ++host) {
      if (hosts[static_cast<std::size_t>(host)] != host) continue;
      bool all = true;
      for (int member = host; member < rank; ++member) {
        all &= hosts[static_cast<std::size_t>(member)] != host || mutual(member, rank);
      }
      if (all) break;
    }
    hosts.push_back(host);
  }
  return hosts;
}

std::vector<int> find_with(Bootstrap& bootstrap, bool named) {
  const auto world = static_cast<std::size_t>(bootstrap.world());
  const Post own(named);
  const std::vector<Sign> signs = bootstrap.exchange(own.sign());
  std::vector<std::uint8_t> mine;
  for (const Sign& sign : signs) mine.push_back(can_read(sign) ? 1 : 0);
  std::vector<std::uint8_t> all(world * world);
  bootstrap.all_gather(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()));
  return group(all, bootstrap.world());
}

}  // namespace

std::vector<int> find_hosts(Bootstrap& bootstrap) {
  std::vector<int> hosts = find_with(bootstrap, false);
  if (count_hosts(hosts) == 1) return hosts;
  // Containers that share /dev/shm but not their processes.
  const std::vector<int> by_file = find_with(bootstrap, true);
  return count_hosts(by_file) < count_hosts(hosts) ? by_file : hosts;
}

}  // namespace sinew::comm
