// Placement: where ranks that outnumber their cores run. A kernel that moves them about as it finds
// them awake leaves five on one core and three on another for whole runs, and each collective then
// takes as long as the fullest core needs. So where it is asked for, each rank's thread stays on
// the core that share_of_cores gives it, as long as every core gets equally many; otherwise moving
// is the only way to share fairly, and they are left alone.
//
// For ranks that do alike, as those that measure collectives. Of ranks that compute in turns, a
// pipeline's or a ring's, two that are due at once may then wait for one core while the other is
// idle: a training step with four pipeline stages on two cores takes 1.3 times as long.
//
// Never does: leave the cores that the launcher, a container or the user allowed; touch threads
// that exist already, or ranks that are threads of one process. Threads made later inherit the
// core: that is what a rank's own threads would be given here (Communicator::own_cores). Threads:
// made and dropped by the thread that it keeps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/wait.h"

namespace sinew::comm {

// 1: as said above; unset or 0: ranks go where the kernel likes.
inline constexpr const char* kSpreadVariable = "SINEW_SPREAD";

// What the variable says. Throws UsageError for a value that is neither.
[[nodiscard]] bool spreads_ranks();
// How many ranks a core of this rank's gets, where they outnumber the cores that all of them may
// use and can be shared out equally; 0: they do not or cannot.
[[nodiscard]] int ranks_per_core(const Neighbours& ranks);

// The one core that each of them stays on, because it may use no other or because ranks are spread;
// -1: it may move.
[[nodiscard]] std::vector<int> fixed_cores(const Neighbours& ranks, bool spread);

class Placement {
 public:
  // Keeps the calling thread where share_of_cores says, if ranks_per_core and the variable allow
  // it. All communicators of a thread share one placement; the last of them drops it, and the
  // thread may use its earlier cores again. Throws UsageError for a variable that is neither 0
  // nor 1.
  [[nodiscard]] static std::shared_ptr<Placement> of_thread(const Neighbours& ranks);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // In words, for the head of a measurement. Empty: no rank shares a core.
  [[nodiscard]] const std::string& text() const { return text_; }
  // Whether this placement keeps the thread on a core that was not its only one before.
  [[nodiscard]] bool keeps() const { return before_ != nullptr; }

 private:
  struct Mask;
  explicit Placement(const Neighbours& ranks);
  std::string text_;
  std::unique_ptr<Mask> before_;  // null: the thread was left alone
  int core_ = -1;
};

}  // namespace sinew::comm
