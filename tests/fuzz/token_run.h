// What the fuzzers of token files share.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "model/token_formats.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::fuzz {

// Reads every token that read() claims, or sees it refused in one line.
template <typename Read>
void try_reading(Read&& read) {
  try {
    const model::TokenRun run = read();
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::uint32_t token = 0;
      std::memcpy(&token, run.tokens + i * run.width, static_cast<std::size_t>(run.width));
      sum += token;
    }
    CHECK_LE(sum, static_cast<std::uint64_t>(run.count) << 32);
  } catch (const UsageError& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace sinew::fuzz
