// RunFolder: the --out folder of a training run. One run at a time writes it, and what an earlier
// run left there is never overwritten by another.
//
// Never does: write checkpoints or metrics (model/ does). Threads: one thread.
#pragma once

#include <string>

namespace sinew::tools {

class RunFolder {
 public:
  // Makes the folder where it is missing and holds its lock until destruction or the end of the
  // process, however it ends. An empty path holds nothing. Throws UsageError when the folder cannot
  // be written, when another run holds it, when it has checkpoints of a run that `resume` (a
  // folder, one checkpoint in it, or empty) does not go on with, and later ones than the one that
  // is named.
  RunFolder(const std::string& path, const std::string& resume);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  explicit RunFolder(const std::string& path);  // makes and locks it
  int descriptor_ = -1;
};

}  // namespace sinew::tools
