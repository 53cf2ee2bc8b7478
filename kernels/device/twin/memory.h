// Device memory of the twin: one memory file per allocation, between pages that may not be touched,
// so that an access past the end faults at once and another process can map it. Internal to twin/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/runtime.h"

namespace sinew::twin {

// One allocation has at most so many bytes: a wrong size must be an error, not all of the machine's
// memory.
inline constexpr std::size_t kMemoryBytes = std::size_t{1} << 30;

// Throws device::Error. The end of the memory is the end of its last page (up to the alignment of
// 256 bytes).
[[nodiscard]] void* allocate_pages(std::size_t size_bytes);
// Aborts when bytes around the allocation were overwritten.
void free_pages(void* data) noexcept;

// Whether the pages can be touched at all.
enum class Touch : std::uint8_t { kAllowed, kRefused };
void protect_pages(const void* data, Touch touch) noexcept;

[[nodiscard]] device::IpcHandle export_pages(const void* data);
// Maps the pages of another process; size_bytes is what unmap_pages wants.
[[nodiscard]] void* import_pages(const device::IpcHandle& handle, std::size_t& size_bytes);
void unmap_pages(void* data, std::size_t size_bytes) noexcept;

}  // namespace sinew::twin
