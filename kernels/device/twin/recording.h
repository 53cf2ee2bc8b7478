// Recording: what a thread may not do between begin_capture() and end_capture() or while kernels
// wait for peers, as on hardware, and which memory is the seam's. Internal to twin/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

#include "kernels/device/twin/memory.h"

namespace sinew::twin {

// Where this thread records: the recording is spoilt, which its end reports, and device::Error says
// so at once.
void refuse_in_recording(const char* what);
// The same where nothing can be thrown.
void spoil_recording(const char* what) noexcept;

// Whether a thread that records has touched managed memory, which cannot be touched then: hardware
// would give it what lay there before the recorded work. The recording is spoilt, and the access
// may be tried again. For the handler of faults.
[[nodiscard]] bool touched_in_recording(const void* address) noexcept;

// Whether a kernel of this thread's streams waits for a peer, or is queued to: what waits for all
// work of the device would wait for that, too.
[[nodiscard]] bool awaits_peers() noexcept;

// All memory of the process that the seam made or mapped.
class KnownMemory {
 public:
  // kManaged: of the thread that adds it, which may also touch it.
  enum class Kind : std::uint8_t { kDevice, kManaged };
  void add(const void* data, std::size_t size_bytes, Kind kind = Kind::kDevice);
  void remove(const void* data) noexcept;
  [[nodiscard]] bool holds(const void* pointer) const;
  [[nodiscard]] bool holds_managed(const void* pointer) const;
  // Whether this thread can touch what it manages.
  void protect_managed(Touch touch) noexcept;

 private:
  struct Block {
    std::size_t size_bytes;
    Kind kind;
    std::thread::id owner;
  };
  [[nodiscard]] const Block* find(const void* pointer) const;
  mutable std::mutex mutex_;
  std::map<const char*, Block> blocks_;
};
[[nodiscard]] KnownMemory& known_memory();

}  // namespace sinew::twin
