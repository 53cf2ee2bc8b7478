// Whether a sanitizer checks this build, which makes it several times slower: tests that are
// exhaustive elsewhere then take a part of their cases, and say so.
#pragma once

#include <cstdio>

namespace sinew::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Tells that a sanitized build takes `part` of what others take whole.
inline void say_thinned(const char* part) {
  if (kSanitized) std::printf("sanitized: %s\n", part);
}

}  // namespace sinew::testing
