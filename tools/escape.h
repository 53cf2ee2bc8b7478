// escaped: text that came from outside, made fit for a terminal. Every text of a file's or a user's
// that is printed goes through here, messages of errors as a whole.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace sinew::tools {

// A message may quote a file of any bytes: a terminal gets none that it would obey, but \xNN for
// each. Lines of a drawing stay lines.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace sinew::tools
