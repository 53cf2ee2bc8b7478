#include "model/host_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "model/agree.h"
#include "model/descriptor.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

int create_memory() { return ::memfd_create("sinew", MFD_CLOEXEC); }

// Where one process finds another's open file.
struct Address {
  std::int64_t process = 0;
  std::int64_t descriptor = -1;
};

Descriptor open_at(const Address& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  return Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

// Every rank holds a file with a number that no other has. A rank belongs to the lowest whose
// number it reads: process numbers mean something else in another container or machine, the number
// in the file does not.
std::unique_ptr<comm::Communicator> ranks_of_host(comm::Communicator& world) {
  struct Card {
    Address address;
    std::uint64_t number = 0;
  };
  const Descriptor own(create_memory());
  Card card{{::getpid(), own.value()}, 0};
  bool usable = own.value() >= 0 && ::getrandom(&card.number, sizeof card.number, 0) > 0;
  usable = usable && ::pwrite(own.value(), &card.number, sizeof card.number, 0) > 0;
  if (!usable) card.address.descriptor = -1;
  std::vector<Card> cards(static_cast<std::size_t>(world.world()));
  world.all_gather(&card, cards.data(), sizeof card, DType::kU8);
  int first = world.rank();
  for (int rank = 0; rank < world.rank(); ++rank) {
    const Card& theirs = cards[static_cast<std::size_t>(rank)];
    if (theirs.address.descriptor < 0) continue;
    const Descriptor file = open_at(theirs.address);
    std::uint64_t found = 0;
    if (file.value() < 0 || ::pread(file.value(), &found, sizeof found, 0) != sizeof found ||
        found != theirs.number)
      continue;
    first = rank;
    break;
  }
  // Its barrier: no card is closed while another rank may still look at it.
  return world.split(first, world.rank());
}

HostMemory::HostMemory(comm::Communicator& host, std::int64_t size_bytes)
    : size_bytes_(static_cast<std::size_t>(size_bytes)) {
  if (size_bytes == 0) return;
  const bool first = host.rank() == 0;
  const Descriptor own(first ? create_memory() : -1);
  agree(host, [&] {
    if (!first) return;
    const int error =
        own.value() < 0 ? errno : ::posix_fallocate(own.value(), 0, static_cast<off_t>(size_bytes));
    if (error != 0)
      throw Error(fmt::format("memory of {} bytes for the tokens cannot be had: {}", size_bytes,
                              std::strerror(error)));
  });
  Address address{::getpid(), own.value()};
  host.broadcast(&address, &address, sizeof address, DType::kU8, 0);
  agree(host, [&] {
    const Descriptor file = open_at(address);
    void* memory =
        ::mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.value(), 0);
    if (memory == MAP_FAILED)
      throw Error(fmt::format("memory of {} bytes for the tokens cannot be mapped: {}", size_bytes,
                              std::strerror(errno)));
    data_ = static_cast<std::byte*>(memory);
  });
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

}  // namespace sinew::model
