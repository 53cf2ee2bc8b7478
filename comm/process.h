// Process: whether another process of this machine lives. A number alone does not say it, since the
// system gives numbers again; a number and a start time do.
//
// Never does: signal or wait. Threads: any.
#pragma once

#include <cstdint>

namespace sinew::comm {

// In ticks since the machine started; 0 when there is no such process.
[[nodiscard]] std::uint64_t process_start_time(int pid);
// False also for a process that has ended and whose parent has not asked for it yet.
[[nodiscard]] bool process_lives(int pid, std::uint64_t start_time);

}  // namespace sinew::comm
