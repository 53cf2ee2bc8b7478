// What the race detector saw. Outside a thread-sanitizer build nothing is seen.
#pragma once

namespace sinew::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kRaceDetector = true;
#else
inline constexpr bool kRaceDetector = false;
#endif

[[nodiscard]] long races_seen();
// From now on a test that ends with a race it did not expect fails.
void fail_tests_on_races();

// During its life reports are expected: they are counted, not printed and not held against the
// test. kFirst: one is enough, the launches that run then are stopped (each report costs
// milliseconds, and a barrier left out can cause thousands).
enum class Enough : bool { kAll, kFirst };
class ExpectRaces {
 public:
  explicit ExpectRaces(Enough enough = Enough::kAll);
  ~ExpectRaces();
  ExpectRaces(const ExpectRaces&) = delete;
  ExpectRaces& operator=(const ExpectRaces&) = delete;

 private:
  int saved_stderr_;
};

}  // namespace sinew::testing
