// Text inside XML, for the drawings.
//
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace sinew::sched {

// With & < > and quotes escaped and control characters as blanks.
[[nodiscard]] std::string escape_xml(std::string_view text);

}  // namespace sinew::sched
