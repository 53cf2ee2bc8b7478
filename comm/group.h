// Group: several calls of one thread that are made together. While a group is open, the blocking
// collectives, sends and receives of every communicator of this thread are only noted; run() makes
// them all and returns when all are done.
//
// Whatever the order inside the group, nothing waits for what comes later in it: messages are under
// way at once, and so are the calls of different communicators. The collectives of one communicator
// keep their order, which must be that of its other ranks, and to those they are started calls: a
// collective in a group meets one in a group, or a started one.
//
// Buffers must stay as they are until run() returns; counts and factors are copied. A call that is
// refused (UsageError) is refused where it is made, and then nothing of the group is done: run()
// throws too. A group inside a group belongs to the outer one, whose run() does the work. Calls
// that return something at once (start_..., split, allocate) cannot be in a group.
//
// Threads: of the thread that opened it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace sinew::comm {

class Group {
 public:
  Group();
  // What was not run is forgotten.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Does what was noted. Throws UsageError when a call in it was refused, comm::Error as waits do;
  // no communicator of the group works on after that.
  void run();

 private:
  friend class Communicator;
  struct Entry;
  struct Queue;
  // What was noted of a communicator that is destroyed cannot be done.
  void lose(const Communicator& communicator);
  // Checks and keeps what is asked.
  void add(Communicator& communicator, const Ask& ask, Call call);
  struct Note {
    bool sends = false;
    const void* source = nullptr;
    void* target = nullptr;
    std::int64_t count = 0;
    DType dtype = DType::kU8;
    int peer = 0;
    int tag = 0;
  };
  void add(Communicator& communicator, const Note& note);
  template <typename Check>
  void checked(const Check& check);
  [[nodiscard]] static Request start(const Entry& entry);
  [[nodiscard]] std::vector<Queue> queues() const;
  void close();

  std::vector<std::unique_ptr<Entry>> entries_;
  std::string refused_;  // what was wrong with the first call that was
};

// Opens a group, makes `calls` and runs it.
void group(const std::function<void()>& calls);

}  // namespace sinew::comm
