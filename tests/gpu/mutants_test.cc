// Leaves out each REQUIRED statement in turn: a wrong result, an error of the twin or a race must
// follow.
#include <set>
#include <string>

#include "tests/gpu/device_array.h"
#include "tests/gpu/races.h"
#include "tests/gpu/scenarios.h"
#include "tests/gpu/sources.h"

namespace sinew {
namespace {

using namespace testing;

struct Mutant {
  std::string file;
  std::string name;
};

std::vector<Mutant> all_mutants() {
  std::vector<Mutant> mutants;
  for (const SourceFile& file : device_sources()) {
    if (!names_required(file)) continue;
    for (const std::string& line : file.lines) {
      const std::string name = required_name(line);
      if (!name.empty()) mutants.push_back({file.name, name});
    }
  }
  return mutants;
}

// How the mutant was noticed; empty when it was not.
std::string notice(const Scenario& scenario, twin::Config config, const Mutant& mutant) {
  config.removed = mutant.name.c_str();
  config.spin_limit_s = 1;
  const twin::Scope scope(config);
  const long before = races_seen();
  try {
    device::Stream stream;
    if (!scenario.run(stream)) return "wrong result";
  } catch (const device::Error& error) {
    return error.what();
  }
  return races_seen() > before ? "race" : "";
}

std::string notice_under_any_schedule(const Mutant& mutant) {
  const ExpectRaces expect(Enough::kFirst);
  for (const Scenario& scenario : kScenarios) {
    if (scenario.file != mutant.file) continue;
    for (const twin::Config& config : schedules()) {
      const std::string noticed = notice(scenario, config, mutant);
      if (!noticed.empty()) return noticed;
    }
  }
  return {};
}

TEST(Mutants, EveryRequiredStatementIsMissedWhenLeftOut) {
  if (!kRaceDetector) GTEST_SKIP() << "needs the race detector: run by test_gpu_tsan";
  for (const Mutant& mutant : all_mutants()) {
    const std::string noticed = notice_under_any_schedule(mutant);
    EXPECT_NE(noticed, "") << mutant.name << " in " << mutant.file
                           << " can be left out and nobody notices";
  }
}

// Written as relaxed: what lies behind the word is then used in no order with who wrote it.
TEST(Mutants, EveryAcquireIsMissedWhenItIsRelaxed) {
  if (!kRaceDetector) GTEST_SKIP() << "needs the race detector: run by test_gpu_tsan";
  for (const Mutant& mutant : {Mutant{"comm/device/resident.cu", "message_acquired"},
                               Mutant{"comm/device/resident.cu", "credit_acquired"},
                               Mutant{"comm/device/messages.cu", "message_acquired"},
                               Mutant{"comm/device/messages.cu", "credit_acquired"}}) {
    EXPECT_NE(notice_under_any_schedule(mutant), "")
        << mutant.name << " in " << mutant.file << " can be relaxed and nobody notices";
  }
}

TEST(Mutants, ScenariosAreRightWhenNothingIsLeftOut) {
  for_each_schedule([](device::Stream& stream) {
    std::set<decltype(Scenario::run)> runs;  // some belong to several files
    for (const Scenario& scenario : kScenarios) {
      if (!runs.insert(scenario.run).second) continue;
      EXPECT_TRUE(scenario.run(stream)) << scenario.file;
    }
  });
}

}  // namespace
}  // namespace sinew
