// Gate: in which order the streams of one host thread begin their operations, when a configuration
// asks for one instead of leaving it to the machine (Config::streams).
//
// Each stream draws a priority from the seed. An operation begins when no stream of a higher one
// has work that could run, and not before the host waits, since until then it may give such a
// stream work. So whatever an event does not forbid happens under some seed: a stream that should
// have waited for another overtakes it, or lags behind all others. What is stuck (a kernel that
// waits for another rank, a host that waits for something else) is waited for by a bounded number
// of looks, then passed by.
//
// Threads: any. Internal to twin/.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace sinew::twin {

class Gate {
 public:
  enum class State : std::uint8_t { kIdle, kBlocked, kReady, kRunning };
  struct Member {
    std::uint64_t priority = 0;
    State state = State::kIdle;
    bool stuck = false;  // running for longer than others have patience
  };

  explicit Gate(std::uint64_t seed) : seed_(seed) {}
  [[nodiscard]] std::shared_ptr<Member> join();
  void leave(const std::shared_ptr<Member>& member);
  // The host has given the stream work.
  void given(Member& member);
  void set(Member& member, State state);
  // Returns when the member's next operation may begin; it is running then.
  void begin(Member& member);
  void host_waits(int change);

 private:
  // What holds the member back; looks counts how often that was asked.
  [[nodiscard]] bool may_begin(const Member& member, int looks);

  std::uint64_t seed_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Member>> members_;
  std::uint64_t joined_ = 0;
  int host_waiting_ = 0;
  bool host_stuck_ = false;
};

}  // namespace sinew::twin
