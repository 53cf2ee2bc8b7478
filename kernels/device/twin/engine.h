// Engine: runs one kernel launch after another on the calling thread. Keeps stacks and arenas
// between launches.
//
// Threads: one engine, one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device/launch_shape.h"
#include "kernels/device/twin/config.h"

namespace sinew::twin {

struct Block;
struct Launch;

struct Kernel {
  void (*body)(const void* argument) = nullptr;  // called once by every thread
  const void* argument = nullptr;
};

// Empty when the shape is legal, else the rule it breaks.
[[nodiscard]] std::string refuse_shape(const device::LaunchShape& shape, const Config& config);

// While true, every launch of the process fails when one of its threads waits or ends; until then
// the race detector no longer looks at the thread that asked. For tests that have seen enough.
void stop_launches(bool stop);

class Engine {
 public:
  Engine();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Empty when the kernel ended well, else what went wrong, where, and what the other threads
  // waited for. `serial` numbers the launches of a stream, so that equal launches do not repeat one
  // interleaving.
  [[nodiscard]] std::string run(const device::LaunchShape& shape, const Config& config,
                                std::uint64_t serial, const Kernel& kernel);

 private:
  void provide(std::size_t blocks, int threads);
  void run_blocks(Launch& launch, const device::LaunchShape& shape);

  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace sinew::twin
