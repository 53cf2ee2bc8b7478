// Process: runs a program with a deadline and returns what it printed and how it ended. For tests
// of the command line. The whole process group is killed at the deadline: nothing is left behind.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace sinew::test {

struct Outcome {
  int exit_code = -1;  // 128 + signal when a signal ended it
  bool timed_out = false;
  std::string out;
  std::string err;
};

[[nodiscard]] Outcome run_process(const std::vector<std::string>& command, int timeout_ms,
                                  const std::string& folder = ".");

// build/sinew with these arguments, alone or under mpirun with `ranks` ranks.
[[nodiscard]] Outcome run_sinew(const std::string& arguments, int timeout_ms = 60000);
[[nodiscard]] Outcome run_sinew_ranks(int ranks, const std::string& arguments,
                                      int timeout_ms = 60000);

// Calls `run` for 0, 1, ... count - 1, several at once: commands that start MPI mostly wait.
void run_at_once(std::size_t count, const std::function<void(std::size_t)>& run);

// A fresh folder below the system's temporary one, removed with everything in it at the end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  [[nodiscard]] std::string path(const std::string& name) const { return root_ + "/" + name; }
  // Writes a file, making the folders on its way, and returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string read(const std::string& name) const;

 private:
  std::string root_;
};

// How many lines `text` has; an unfinished last line counts.
[[nodiscard]] int count_lines(const std::string& text);

}  // namespace sinew::test
