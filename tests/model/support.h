// What the tests of model/ share: a scratch directory, small models, and training runs on threads.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "model/layouts.h"
#include "model/trainer.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::model::test {

// A directory of this process, removed with its contents.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "sinew-test-XXXXXX";
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  [[nodiscard]] std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs body on `world` threads of this process, each one rank; what a rank throws is thrown here.
inline void run_ranks(int world, const std::function<void(comm::Communicator&)>& body) {
  comm::Communicator::run_threads(world, {.transport = "local", .timeout_s = 60}, body);
}

// What rank 0 of `world` sees of training that many steps, with a plan's fault.
inline LayoutRun run_on_threads(const TrainOptions& options, int world, int steps,
                                const std::string& fault = "") {
  LayoutRun result;
  std::mutex mutex;
  run_ranks(world, [&](comm::Communicator& communicator) {
    TrainPlan plan = make_plan(options, world);
    plan.fault = fault;
    const LayoutRun run = run_layout(plan, communicator, make_batch(plan, 5), steps);
    const std::lock_guard<std::mutex> lock(mutex);
    if (communicator.rank() == 0) result = run;
  });
  return result;
}

// A model file of these sizes; returns its path.
struct ModelSize {
  int layers = 2;
  int heads = 2;
  int channels = 16;
  int vocabulary = 256;
  int max_time = 16;
};
inline std::string write_model(const ScratchDirectory& directory, const ModelSize& size) {
  return directory.write("model.json", "{\"layers\": " + std::to_string(size.layers) +
                                           ", \"heads\": " + std::to_string(size.heads) +
                                           ", \"channels\": " + std::to_string(size.channels) +
                                           ", \"vocabulary\": " + std::to_string(size.vocabulary) +
                                           ", \"max_time\": " + std::to_string(size.max_time) +
                                           "}");
}

// Some text to train on.
inline std::string write_text_data(const ScratchDirectory& directory) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 37 % 101) + "\n";
  return directory.write("data.txt", text);
}

// Ranks along the axes, and what data parallelism cuts.
struct Split {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int zero = 0;
  int shard = 0;
  [[nodiscard]] int world() const { return tp * pp * dp; }
  void apply(TrainOptions& options) const {
    options.tp = tp;
    options.pp = pp;
    options.dp = dp;
    options.zero = zero;
    options.shard = shard;
  }
};

// `count` of the layouts, drawn anew for every day that the test runs; `sinew layouts` runs all.
inline std::vector<TrainOptions> sample(std::vector<TrainOptions> layouts, std::size_t count) {
  const std::uint64_t seed = static_cast<std::uint64_t>(std::time(nullptr)) / 86400;
  std::printf("%zu of %zu layouts, seed %llu\n", std::min(count, layouts.size()), layouts.size(),
              static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  std::shuffle(layouts.begin(), layouts.end(), random);
  layouts.resize(std::min(count, layouts.size()));
  return layouts;
}

// The message of the UsageError that `body` must throw; "" when it throws none. Every such message
// is one line.
inline std::string usage_error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

// The model of tests that take optimizer steps without a trainer, and its parameters' names.
inline Config optimizer_config() {
  return {.name = "test", .layers = 2, .heads = 2, .channels = 6, .vocabulary = 11, .max_time = 5};
}
inline std::vector<std::string> optimizer_names() { return parameter_names(optimizer_config()); }

}  // namespace sinew::model::test
