// Sizes and times as people write them: "64M" is 64 MiB, "12.3 us" is a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sinew {

// "8", "64K", "1M", "2G" (binary multiples; "KiB" and "KB" spellings too). Throws UsageError.
[[nodiscard]] std::int64_t parse_bytes(std::string_view text);
// "8:64M:x4" is 8, 32, ... up to 64M; "1K:4K:+1K" is arithmetic; "1M" alone is one size; commas
// join lists.
[[nodiscard]] std::vector<std::int64_t> parse_byte_range(std::string_view text);
// 1536 is "1.5 KiB"; exact when it can be.
[[nodiscard]] std::string format_bytes(std::int64_t size_bytes);
// Seconds as "850 ns", "12.3 us", "4.56 ms", "7.89 s", "3m20s".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace sinew
