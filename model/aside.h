// Files that get their name when they are whole: until then they are written aside, in the same
// folder.
//
// Never does: write, or give a file its name. Threads: any; the file system decides between two.
#pragma once

#include <string>

namespace sinew::model {

// Where a symbolic link leads, so that what it names is replaced and not the link; else the path.
[[nodiscard]] std::string followed(const std::string& path);

// Creates PATH.partial, or the first of PATH.partial2, PATH.partial3, ... that is not there:
// another run's unfinished file, or somebody's own of that name, stays what it is. Returns its
// name; empty, with errno saying why, when none can be created.
[[nodiscard]] std::string create_aside(const std::string& path);

}  // namespace sinew::model
