// Bootstrap: how ranks that cannot yet reach each other exchange small blobs (addresses, segment
// names) while a communicator is set up. MPI, threads of one process and an existing communicator
// are implementations.
//
// Never does: move a byte of a collective.
// Threads: one bootstrap per rank, one thread at a time.
// Every exchange is collective and bounded by the bootstrap's deadline; a late or failed rank is
// comm::Error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sinew::comm {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;

  // all: [world][mine.size()] bytes in rank order. Every rank passes the same size.
  virtual void all_gather(std::span<const std::byte> mine, std::byte* all) = 0;

  template <typename Blob>
  [[nodiscard]] std::vector<Blob> exchange(const Blob& mine) {
    static_assert(std::is_trivially_copyable_v<Blob>);
    std::vector<Blob> all(static_cast<std::size_t>(world()));
    all_gather(std::as_bytes(std::span(&mine, 1)), reinterpret_cast<std::byte*>(all.data()));
    return all;
  }
};

// All of MPI_COMM_WORLD. Initialises MPI when it is not, and then finalises it at exit unless a
// communicator failed. Throws Error when the launcher and this binary disagree about MPI.
[[nodiscard]] std::unique_ptr<Bootstrap> mpi_bootstrap(double timeout_s);
// What would keep MPI from starting this process alone, and the remedy; both empty: nothing known.
struct Obstacle {
  std::string found;
  std::string remedy;
};
[[nodiscard]] Obstacle obstacle_to_mpi();
// Ranks 0 to world - 1 of one machine meet at a path that nothing lies at.
[[nodiscard]] std::unique_ptr<Bootstrap> socket_bootstrap(int rank, int world,
                                                          const std::string& path,
                                                          double timeout_s);
// What SINEW_RANK, SINEW_WORLD and SINEW_MEET, a folder, say of a rank that tools/launch.sh
// started; nothing where none is set. Throws UsageError where some are missing or are no rank.
struct LaunchedRank {
  int rank = 0;
  int world = 1;
  std::string meet;
};
[[nodiscard]] std::optional<LaunchedRank> launched_rank();
// As this process was started: by tools/launch.sh, which meets over sockets; else all of
// MPI_COMM_WORLD; in a build without MPI alone.
[[nodiscard]] std::unique_ptr<Bootstrap> launched_bootstrap(double timeout_s);
// After a failure peers may be gone, and MPI_Finalize would wait for them: leave it out at exit.
void mpi_skip_finalize();

// `world` threads of this process: rank r uses element r of the result.
[[nodiscard]] std::vector<std::unique_ptr<Bootstrap>> thread_bootstraps(int world,
                                                                        double timeout_s);

}  // namespace sinew::comm
