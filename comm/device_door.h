// DeviceDoor: a communicator's way to collectives on device memory. A call whose buffers the door
// owns goes through it; every other call takes the communicator's own transport.
//
// Threads: the communicator's. Collective: all ranks open the same door and call through it alike.
#pragma once

#include <cstdint>
#include <string_view>

namespace sinew::comm {

struct Ask;

class DeviceDoor {
 public:
  virtual ~DeviceDoor() = default;
  // Whether the memory is the device's.
  [[nodiscard]] virtual bool owns(const void* pointer) const = 0;
  // Queues the call behind what the device was given before; the host must not wait for its result
  // in another way than by the device. Returns the bytes this rank sends. algorithm: a row's name,
  // or auto.
  virtual std::int64_t run(const Ask& ask, std::string_view algorithm) = 0;
  // Waits for the device. Throws comm::Error when a call through this door failed.
  virtual void check() = 0;
  // Collective: no peer needs this rank's memory any more. A door that is not closed must outlive
  // its peers' kernels.
  virtual void close() = 0;
};

}  // namespace sinew::comm
