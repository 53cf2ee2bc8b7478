// LastLine: how a failed process ends with one line on standard error that is not lost.
//
// A launcher reads that line from a pipe and learns of the end in other ways. Where it is itself
// ending the run, nothing makes it read what came after.
//
// Never does: run exit handlers, MPI_Finalize among them, which may wait for other ranks.
#pragma once

#include <string>

namespace sinew::comm {

// Writes `line` and a newline, waits until the reader of a pipe has taken them, for two seconds at
// most, and ends the process with `code`. Any thread may call it; others go on until the end.
[[noreturn]] void exit_with_line(const std::string& line, int code);

}  // namespace sinew::comm
