#include "tests/gpu/races.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "kernels/device/twin/engine.h"

namespace {

std::atomic<long> reports{0};
std::atomic<long> expected{0};
std::atomic<bool> expecting{false};
std::atomic<bool> one_is_enough{false};

class FailOnRaces : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    const long unexpected = reports - expected - judged_;
    judged_ += unexpected;
    if (unexpected > 0) ADD_FAILURE() << unexpected << " data races, reported above";
  }
  long judged_ = 0;
};

}  // namespace

// Hooks of the thread sanitizer's runtime.
extern "C" {
void __tsan_on_report(void*) {
  ++reports;
  if (!expecting) return;
  ++expected;
  if (one_is_enough) sinew::twin::stop_launches(true);
}
// A test may produce the same race again and must see it again.
const char* __tsan_default_options() {
  return "suppress_equal_stacks=0 suppress_equal_addresses=0";
}
}

namespace sinew::testing {

long races_seen() { return reports; }

void fail_tests_on_races() {
  ::testing::UnitTest::GetInstance()->listeners().Append(new FailOnRaces);
}

ExpectRaces::ExpectRaces(Enough enough) : saved_stderr_(dup(STDERR_FILENO)) {
  std::fflush(stderr);
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(null, STDERR_FILENO);
  close(null);
  one_is_enough = enough == Enough::kFirst;
  expecting = true;
}

ExpectRaces::~ExpectRaces() {
  expecting = false;
  twin::stop_launches(false);
  std::fflush(stderr);
  dup2(saved_stderr_, STDERR_FILENO);
  close(saved_stderr_);
}

}  // namespace sinew::testing
