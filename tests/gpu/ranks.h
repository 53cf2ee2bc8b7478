// run_ranks: ranks as threads, each with its own device of the twin.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "comm/bootstrap.h"
#include "comm/error.h"
#include "kernels/device/twin/config.h"

namespace sinew::testing {

// A deadline that nothing but a hang meets, whatever else the machine does meanwhile: a program
// that hangs is ended by its own time limit. A GPU is nobody else's, and its hangs are to be told.
#if defined(SINEW_ON_HARDWARE)
inline constexpr double kHangS = 20;
#else
inline constexpr double kHangS = 3600;
#endif

// Runs body(bootstrap) on one thread per rank, each under the caller's twin configuration; rethrows
// what made the others fail. Deadlines that only a hang may meet are long: ranks outnumber cores.
inline void run_ranks(int world, const std::function<void(comm::Bootstrap&)>& body) {
  twin::Config config = twin::Scope::current();
  const bool may_hang = config.removed != nullptr;
  if (!may_hang) config.spin_limit_s = kHangS;
  const auto bootstraps = comm::thread_bootstraps(world, may_hang ? 1.0 : kHangS);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < bootstraps.size(); ++r) {
    threads.emplace_back([&, r] {
      const twin::Scope scope(config);
      try {
        body(*bootstraps[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr waited;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const comm::Error&) {
      waited = error;
    }
  }
  if (waited) std::rethrow_exception(waited);
}

}  // namespace sinew::testing
