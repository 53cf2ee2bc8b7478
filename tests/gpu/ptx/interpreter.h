// Interpreter: runs kernels from nvcc's PTX on the twin. A thread of the twin executes instructions
// instead of the code that the C++ compiler made of the same source, so that schedules, barriers,
// shared memory, matrix units and streams are the twin's, and what is tested is nvcc's output with
// the PTX inside of the wrappers in kernels/device/gpu.
//
// Threads: any; streams of several ranks run kernels at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/device/twin/launch.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/memory.h"

namespace sinew::ptx {

struct Options {
  std::string folder;  // every .ptx file in it
  bool weak = false;   // see memory.h
  Change change;
};

class Interpreter : public twin::Interpreter {
 public:
  // Throws Error when the folder holds no PTX, or that of several architectures.
  explicit Interpreter(Options options);

  [[nodiscard]] std::vector<std::string> entries() const;
  // Over all launches so far.
  [[nodiscard]] std::uint64_t launches() const { return launches_; }
  [[nodiscard]] std::uint64_t instructions() const { return instructions_; }
  // Stores under weak memory that nothing keeps behind another block's load: none in a right
  // kernel.
  [[nodiscard]] std::uint64_t overtaking_stores() const { return history_.overtaking(); }
  [[nodiscard]] int compute_major() const override { return target_ / 10; }
  // Throws Error that names what is not known of the kernel.
  const Function& function(const std::string& entry);

  [[nodiscard]] std::string run(twin::Engine& engine, const device::LaunchShape& shape,
                                const twin::Config& config, std::uint64_t serial,
                                const twin::KernelCall& call) override;

 private:
  Options options_;
  int target_ = 0;
  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::uint64_t> instructions_{0};
  History history_;  // of weak memory
  std::vector<std::unique_ptr<Source>> sources_;
  std::map<std::string, const Source*> source_of_;
  std::mutex lock_;
  std::map<std::string, std::unique_ptr<Function>> functions_;
};

}  // namespace sinew::ptx
