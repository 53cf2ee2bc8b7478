#include "kernels/device/twin/gate.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace sinew::twin {

namespace {

// A look takes the time between two; a process that was stopped meanwhile has not looked.
constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr int kLooksMost = 200;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

std::shared_ptr<Gate::Member> Gate::join() {
  const std::lock_guard lock(mutex_);
  auto member = std::make_shared<Member>();
  member->priority = mixed(seed_ * 0x9e3779b97f4a7c15ULL + ++joined_);
  members_.push_back(member);
  return member;
}

void Gate::leave(const std::shared_ptr<Member>& member) {
  const std::lock_guard lock(mutex_);
  std::erase(members_, member);
}

void Gate::given(Member& member) {
  const std::lock_guard lock(mutex_);
  host_stuck_ = false;
  if (member.state == State::kIdle) member.state = State::kReady;
}

void Gate::set(Member& member, State state) {
  const std::lock_guard lock(mutex_);
  member.state = state;
  member.stuck = false;
}

void Gate::host_waits(int change) {
  const std::lock_guard lock(mutex_);
  host_waiting_ += change;
}

void Gate::begin(Member& member) {
  for (int looks = 0;; ++looks) {
    {
      const std::lock_guard lock(mutex_);
      if (looks == 0) member.state = State::kReady;
      if (may_begin(member, looks)) {
        member.state = State::kRunning;
        return;
      }
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

bool Gate::may_begin(const Member& member, int looks) {
  const bool patient = looks < kLooksMost;
  bool highest = true;
  for (const auto& other : members_) {
    if (other->priority <= member.priority) continue;
    highest = false;
    if (other->state == State::kReady) return false;
    if (other->state != State::kRunning || other->stuck) continue;
    if (patient) return false;
    other->stuck = true;
  }
  if (highest || host_waiting_ > 0 || host_stuck_) return true;
  host_stuck_ = !patient;
  return host_stuck_;
}

}  // namespace sinew::twin
