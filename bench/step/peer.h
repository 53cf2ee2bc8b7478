// Peer: another program that trains the same model beside ours, one step at a time, so that both
// meet the same moments of the machine.
//
// The program gets the model and batch as arguments (see StepCase), writes "ready" or "skipped:
// REASON", then for every line it reads runs one training step and writes the processor seconds it
// took. It ends when its input does.
//
// Never does: know what the program is. Threads: one object, one thread. Every answer has a
// deadline.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

namespace sinew::bench {

struct StepCase {
  std::string model;  // of model/config.h
  std::int64_t batch = 0;
  std::int64_t time = 0;
  std::string dtype;
};

class Peer {
 public:
  // Starts `command` by a shell with the arguments LAYERS HEADS CHANNELS VOCABULARY MAX_TIME BATCH
  // TIME DTYPE. Throws Error when it neither becomes ready nor says why not.
  Peer(std::string name, const std::string& command, const StepCase& step_case);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  // Why it does not take part; empty when it does.
  [[nodiscard]] const std::string& skipped() const { return skipped_; }
  // Runs one step; its processor seconds. Throws Error when the program ends or answers no number.
  [[nodiscard]] double step();

 private:
  [[nodiscard]] std::string read_line();

  std::string name_;
  std::string skipped_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

}  // namespace sinew::bench
