// Threads: how many threads a kernel may use. A value that is passed, never a global.
#pragma once

namespace sinew::kernels {

struct Threads {
  int count = 1;
};

}  // namespace sinew::kernels
