// The runtime seam: device, memory, stream, event, graph and peer mapping, as few calls as the
// project needs. Two implementations of this header exist and a program links one of them:
// cuda_runtime.cu on CUDA's runtime, twin/runtime.cc on host memory and threads.
//
// Never does: choose launch shapes (the kernels' files do), move bytes between ranks (comm does).
// Threads: distinct objects may be used by distinct threads; one object, one thread at a time.
// Errors: every call checks; what fails throws device::Error with one line that names the remedy.
// An error of queued work is thrown by the next call on its stream and stays: the stream is then
// good for nothing.
//
// Invariants
//   1. Work of one stream runs in the order of the calls; nothing orders two streams but Event.
//   2. Memory is never read or written by the host while queued work may touch it.
//   3. Between begin_capture() and end_capture() the recording thread neither waits for nor asks
//      about work, allocates or frees memory, nor copies memory that is not this seam's. Recorded
//      work waits for recorded events only, and every stream that joined is waited for at the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "sched/base/error.h"

namespace sinew::device {

class Error : public sinew::Error {
 public:
  using sinew::Error::Error;
};

struct Properties {
  std::string name;
  int multiprocessors = 0;
  int major = 0;  // compute capability
  int minor = 0;
  std::size_t memory_bytes = 0;
  std::size_t shared_bytes_block_max = 0;
  bool twin = false;  // the host twin, not hardware
};

// Empty when a device can be used; else one line: the reason and the remedy.
[[nodiscard]] std::string unavailable();
[[nodiscard]] int count();
// Chooses the device of the calling thread. Throws UsageError naming the legal values.
void select(int device);
[[nodiscard]] int selected();
[[nodiscard]] const Properties& properties();  // of the selected device
// Whether `device` can map memory of `peer` (NVLink or PCIe); enable_peer makes it so, once per
// pair.
[[nodiscard]] bool can_reach(int device, int peer);
void enable_peer(int peer);

// How one device reaches the memory of another. kTwin: both are the host twin's. kNone: not at all.
enum class LinkKind : std::uint8_t { kSame, kNvLink, kPcie, kTwin, kNone };
constexpr std::string_view name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::kSame:
      return "the same device";
    case LinkKind::kNvLink:
      return "NVLink";
    case LinkKind::kPcie:
      return "PCIe";
    case LinkKind::kTwin:
      return "host memory (twin)";
    case LinkKind::kNone:
      return "no link";
  }
  return "";
}
// Names the selected device to other processes of this machine, in fewer than 32 characters.
[[nodiscard]] std::string bus_address();
// From the selected device to the one of that name; kNone also when this process does not see it.
[[nodiscard]] LinkKind link_to(const std::string& address);

// kManaged: the device computes on it and the host may address it while no queued work uses it;
// pages lie where they were touched last. kShared: kDevice, with nothing else in the driver's block
// of 2 MiB that another process maps with it; the only kind that export_memory names.
enum class MemoryKind : std::uint8_t { kDevice, kPinnedHost, kManaged, kShared };

// Owned memory, aligned to 256 bytes, contents undefined (the twin fills it with 0xff, a NaN in
// every format). No queued work uses it when it is freed. Making and freeing a kind other than
// kDevice may wait for all work of the device, whatever it waits for in turn: not while a kernel
// waits for a peer, which the twin refuses.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t size_bytes, MemoryKind kind = MemoryKind::kDevice);
  Memory(Memory&& other) noexcept { *this = static_cast<Memory&&>(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory() { release(); }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] MemoryKind kind() const { return kind_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void release() noexcept;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

class Graph;
class Stream;

// A mark in a stream. Recording again replaces the mark; a wait refers to the latest record before
// it, and to nothing when there is none.
class Event {
 public:
  Event();
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;
  void record(Stream& stream);
  void synchronize() const;
  [[nodiscard]] bool ready() const;
  [[nodiscard]] double seconds_since(const Event& earlier) const;  // both must be ready

 private:
  friend class Graph;
  friend class Stream;
  struct State;
  std::shared_ptr<State> state_;  // shared with queued work, which may outlive the handle
};

// Recorded work of one stream, launched again as a whole. Buffers and arguments are those of the
// recording.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  void launch(Stream& stream) const;

 private:
  friend class Stream;
  struct State;
  std::unique_ptr<State> state_;
};

// kUrgent: blocks of its kernels go before those of kOrdinary that wait for a multiprocessor, so
// that a collective need not wait for the end of a product. The twin knows no difference.
enum class Urgency : std::uint8_t { kOrdinary, kUrgent };

class Stream {
 public:
  explicit Stream(Urgency urgency = Urgency::kOrdinary);
  ~Stream();  // waits for queued work
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queue work and return. Sources and targets may be device memory, mapped peer memory or host
  // memory.
  void copy(void* target, const void* source, std::size_t size_bytes);
  void fill(void* target, std::uint8_t value, std::size_t size_bytes);
  // `rows` rows of row_bytes each, which lie that many bytes apart.
  struct Rows {
    std::size_t rows = 0;
    std::size_t row_bytes = 0;
    std::size_t target_stride = 0;
    std::size_t source_stride = 0;
  };
  void copy_rows(void* target, const void* source, const Rows& rows);
  void wait(const Event& event);

  void synchronize();
  [[nodiscard]] bool idle();

  // Between the two, work is recorded instead of run, also that of streams which meanwhile wait for
  // an event recorded here.
  void begin_capture();
  [[nodiscard]] Graph end_capture();
  [[nodiscard]] bool recording() const;

  struct State;
  [[nodiscard]] State& state() const { return *state_; }  // for launch.h

 private:
  std::unique_ptr<State> state_;
};

// For kernels/device/required.h: whether the twin's configuration leaves out the ordering statement
// of that name. Never on hardware.
[[nodiscard]] bool is_left_out(const char* name);

// Names one allocation of kind kShared to another process of this machine; plain bytes, sent by the
// bootstrap.
struct IpcHandle {
  std::array<std::byte, 64> bytes{};
};
[[nodiscard]] IpcHandle export_memory(const Memory& memory);

// Another process's allocation in this one's address space. Must be destroyed before the owner
// frees it.
class Mapping {
 public:
  Mapping() = default;
  explicit Mapping(const IpcHandle& handle);
  Mapping(Mapping&& other) noexcept { *this = static_cast<Mapping&&>(other); }
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { release(); }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void release() noexcept;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace sinew::device
