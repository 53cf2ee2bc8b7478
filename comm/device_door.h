// DeviceDoor: a communicator's way to collectives and messages on device memory. A call whose
// buffers the door owns goes through it; every other call takes the communicator's own transport.
//
// The caller computes on one stream. A call through the door begins when all that this stream was
// given before is done, and runs beside what it is given afterwards, until finish().
//
// Threads: the communicator's. Collective: all ranks open the same door and call through it alike.
#pragma once

#include <cstdint>
#include <string_view>

#include "sched/base/dtype.h"

namespace sinew::comm {

struct Ask;

class DeviceDoor {
 public:
  virtual ~DeviceDoor() = default;
  // Whether the memory is the device's.
  [[nodiscard]] virtual bool owns(const void* pointer) const = 0;

  struct Started {
    std::int64_t sent_bytes = 0;  // by this rank
    std::uint64_t ticket = 0;
  };
  // Queues the call and returns. algorithm: a row's name, or auto.
  [[nodiscard]] virtual Started start(const Ask& ask, std::string_view algorithm) = 0;

  // Whether messages go through this door, too; else they are the host's, which must wait for the
  // device itself.
  [[nodiscard]] virtual bool takes_messages() const = 0;
  struct Way {
    int peer;
    int tag;
  };
  // Messages of one way keep their order; those of different ways do not wait for each other.
  [[nodiscard]] virtual std::uint64_t start_send(const void* data, std::int64_t count, DType dtype,
                                                 Way way) = 0;
  [[nodiscard]] virtual std::uint64_t start_recv(void* data, std::int64_t count, DType dtype,
                                                 Way way) = 0;

  // What the computing stream is given from now on comes after the call. A ticket is given up by
  // it, or by done() when that is true.
  virtual void finish(std::uint64_t ticket) = 0;
  // Whether the call is done already. Never while work is being recorded.
  [[nodiscard]] virtual bool done(std::uint64_t ticket) = 0;

  // Waits for the device. Throws comm::Error when a call through this door failed.
  virtual void check() = 0;
  // Collective: no peer needs this rank's memory any more. A door that is not closed must outlive
  // its peers' kernels.
  virtual void close() = 0;
};

}  // namespace sinew::comm
