// Memory whose pages lie in a file: the system writes them out and drops them when memory is short,
// swap or no swap.
//
// The file has no name once it is mapped, so nothing is left behind however a run ends.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>

namespace sinew::model {

// size_bytes > 0 zeroed bytes, aligned to a page, in a file of the folder, whose disk space is
// reserved. Throws UsageError when there is no such folder, Error when the file cannot be made.
[[nodiscard]] std::byte* map_file_memory(const std::string& folder, std::size_t size_bytes);
void unmap_file_memory(std::byte* memory, std::size_t size_bytes);

}  // namespace sinew::model
