// Config: how the twin interleaves threads. A failure is replayed from the printed configuration.
#pragma once

#include <cstdint>
#include <string>

namespace sinew::twin {

class Interpreter;

enum class Order : std::uint8_t {
  kFifo,      // the thread that became ready first
  kLifo,      // the one that became ready last
  kRandom,    // any, uniformly
  kPriority,  // a priority per warp, redrawn now and then: long delays of one warp against the
              // others
};

// When an asynchronous copy or matrix product happens. Late hides a buffer overwritten too early,
// early hides a missing wait: tests need both.
enum class Async : std::uint8_t { kEager, kLazy, kRandom };

// In which order the streams of a thread begin their work, as far as events leave it open.
enum class Streams : std::uint8_t {
  kFree,      // as the machine has it
  kPriority,  // by priorities drawn from the seed (gate.h)
};

struct Config {
  Order order = Order::kFifo;
  Async async = Async::kLazy;
  std::uint64_t seed = 0;
  Streams streams = Streams::kFree;
  int resident_blocks = 1;        // blocks of an ordinary launch that run at once
  int multiprocessors = 8;        // a launch whose blocks must all be resident may have this many
  double spin_limit_s = 20;       // busy waiting without progress for so long is reported
  const char* removed = nullptr;  // name of the REQUIRED statement left out: a mutant
  Interpreter* interpreter = nullptr;  // runs a kernel in another way than calling it
};

[[nodiscard]] std::string describe(const Config& config);

// Streams created by this thread during a scope's life use its configuration. Scopes nest; an
// interpreter stays unless an inner one names another.
class Scope {
 public:
  explicit Scope(const Config& config);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  [[nodiscard]] static const Config& current();

 private:
  const Config* outer_;
  Config config_;
};

}  // namespace sinew::twin
