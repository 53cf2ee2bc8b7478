// Recording: what a thread may not do between begin_capture() and end_capture(), as on hardware,
// and which memory is the seam's. Internal to twin/.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace sinew::twin {

// Where this thread records: the recording is spoilt, which its end reports, and device::Error says
// so at once.
void refuse_in_recording(const char* what);
// The same where nothing can be thrown.
void spoil_recording(const char* what) noexcept;

// All memory of the process that the seam made or mapped.
class KnownMemory {
 public:
  void add(const void* data, std::size_t size_bytes);
  void remove(const void* data) noexcept;
  [[nodiscard]] bool holds(const void* pointer) const;

 private:
  mutable std::mutex mutex_;
  std::map<const char*, std::size_t> sizes_;
};
[[nodiscard]] KnownMemory& known_memory();

}  // namespace sinew::twin
