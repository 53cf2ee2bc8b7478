// Bootstrap over UNIX sockets, for ranks of one machine that a launcher without MPI started: rank 0
// listens at a path, the others connect, and every exchange passes through rank 0.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/error.h"
#include "sched/base/text.h"

namespace sinew::comm {

namespace {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(double seconds) : end_(Clock::now() + std::chrono::duration<double>(seconds)) {}
  [[nodiscard]] bool passed() const { return Clock::now() > end_; }
  [[nodiscard]] int left_ms() const {
    const std::chrono::duration<double, std::milli> left = end_ - Clock::now();
    return left.count() > 0 ? static_cast<int>(left.count()) + 1 : 0;
  }

 private:
  std::chrono::time_point<Clock, std::chrono::duration<double>> end_;
};

class SocketBootstrap final : public Bootstrap {
 public:
  SocketBootstrap(int rank, int world, const std::string& path, double timeout_s)
      : rank_(rank), world_(world), timeout_s_(timeout_s) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) fail("the path '" + path + "' is too long");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const Deadline deadline(timeout_s);
    if (rank == 0) {
      listen_at(address, deadline);
    } else {
      connect_to(address, deadline);
    }
  }
  ~SocketBootstrap() override {
    for (const int peer : peers_) {
      if (peer >= 0) ::close(peer);
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world() const override { return world_; }

  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    const Deadline deadline(timeout_s_);
    const std::size_t size = mine.size();
    const std::size_t total = size * static_cast<std::size_t>(world_);
    if (rank_ != 0) {
      write_all(peers_[0], mine.data(), size);
      read_all(peers_[0], all, total, deadline);
      return;
    }
    std::memcpy(all, mine.data(), size);
    for (std::size_t r = 1; r < peers_.size(); ++r)
      read_all(peers_[r], all + r * size, size, deadline);
    for (std::size_t r = 1; r < peers_.size(); ++r) write_all(peers_[r], all, total);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Cause::kTimeout, rank_, -1, "setup over sockets: " + what);
  }
  [[noreturn]] void fail_late() const {
    fail("not all of the " + std::to_string(world_) + " ranks came within the deadline");
  }

  // Peers say who they are when they come, in any order.
  void listen_at(const sockaddr_un& address, const Deadline& deadline) {
    peers_.assign(static_cast<std::size_t>(world_), -1);
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 ||
        ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::chmod(address.sun_path, S_IRUSR | S_IWUSR) != 0 ||  // whatever the umask allows
        ::listen(listener, world_) != 0) {
      fail(std::string("rank 0 cannot listen at '") + address.sun_path +
           "': " + std::strerror(errno));
    }
    for (int came = 1; came < world_; ++came) {
      pollfd waiting{listener, POLLIN, 0};
      if (::poll(&waiting, 1, deadline.left_ms()) <= 0) fail_late();
      const int peer = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      int who = -1;
      read_all(peer, reinterpret_cast<std::byte*>(&who), sizeof who, deadline);
      if (who < 1 || who >= world_ || peers_[static_cast<std::size_t>(who)] >= 0)
        fail("rank " + std::to_string(who) + " came twice or is no rank");
      peers_[static_cast<std::size_t>(who)] = peer;
    }
    ::close(listener);
    ::unlink(address.sun_path);
  }

  void connect_to(const sockaddr_un& address, const Deadline& deadline) {
    peers_.assign(1, -1);
    constexpr timespec kPause{0, 2'000'000};
    while (true) {
      const int root = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (root < 0) fail(std::strerror(errno));
      if (::connect(root, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        peers_[0] = root;
        write_all(root, reinterpret_cast<const std::byte*>(&rank_), sizeof rank_);
        return;
      }
      ::close(root);
      if (deadline.passed()) fail_late();
      nanosleep(&kPause, nullptr);
    }
  }

  void write_all(int socket, const std::byte* data, std::size_t size) const {
    while (size > 0) {
      const ssize_t count = ::send(socket, data, size, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail("a rank is gone");
      data += count;
      size -= static_cast<std::size_t>(count);
    }
  }
  void read_all(int socket, std::byte* data, std::size_t size, const Deadline& deadline) const {
    while (size > 0) {
      pollfd waiting{socket, POLLIN, 0};
      if (::poll(&waiting, 1, deadline.left_ms()) <= 0) fail_late();
      const ssize_t count = ::recv(socket, data, size, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail("a rank is gone");
      data += count;
      size -= static_cast<std::size_t>(count);
    }
  }

  int rank_;
  int world_;
  double timeout_s_;
  std::vector<int> peers_;  // rank 0: by rank; else rank 0 alone
};

}  // namespace

std::unique_ptr<Bootstrap> socket_bootstrap(int rank, int world, const std::string& path,
                                            double timeout_s) {
  return std::make_unique<SocketBootstrap>(rank, world, path, timeout_s);
}

// On one machine; far beyond what its cores can serve.
constexpr std::int64_t kMostLaunched = 4096;

std::optional<LaunchedRank> launched_rank() {
  constexpr std::array kNames = {"SINEW_RANK", "SINEW_WORLD", "SINEW_MEET"};
  std::array<std::string, kNames.size()> values;
  std::string given;
  std::string missing;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const char* value = std::getenv(kNames[i]);
    std::string& list = value != nullptr ? given : missing;
    if (!list.empty()) list += ", ";
    list += kNames[i];
    if (value == nullptr) continue;
    values[i] = value;
    list += "='" + values[i] + "'";
  }
  if (given.empty()) return std::nullopt;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(given + what + ": legal are SINEW_WORLD from 1 to " +
                     std::to_string(kMostLaunched) +
                     ", SINEW_RANK from 0 below that and SINEW_MEET, a folder, as tools/launch.sh "
                     "sets them, or none of the three");
  };
  if (!missing.empty()) refuse(" without " + missing);
  const std::int64_t world = parse_int(values[1], kNames[1]);
  const std::int64_t rank = parse_int(values[0], kNames[0]);
  if (world < 1 || world > kMostLaunched || rank < 0 || rank >= world) refuse(" is no rank");
  return LaunchedRank{static_cast<int>(rank), static_cast<int>(world), values[2]};
}

std::unique_ptr<Bootstrap> launched_bootstrap(double timeout_s) {
  if (const std::optional<LaunchedRank> launched = launched_rank()) {
    static int meetings = 0;  // all ranks of a run make the same ones, one after the other
    return socket_bootstrap(launched->rank, launched->world,
                            launched->meet + "/" + std::to_string(meetings++), timeout_s);
  }
#if SINEW_HAVE_MPI
  return mpi_bootstrap(timeout_s);
#else
  return std::move(thread_bootstraps(1, timeout_s).front());
#endif
}

#if !SINEW_HAVE_MPI
void mpi_skip_finalize() {}
#endif

}  // namespace sinew::comm
