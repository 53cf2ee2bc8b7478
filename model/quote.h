// quoted: text from a file, made fit for a one-line message.
#pragma once

#include <string>

namespace sinew::model {

// In double quotes, as JSON writes it: control characters escaped, bytes that are no UTF-8
// replaced.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace sinew::model
