// REQUIRED for host code that orders streams: the statement is executed, except where a test of the
// twin leaves out the one of that name and must notice. Kernels take theirs from gpu/thread.h.
#pragma once

#include "kernels/device/runtime.h"

#define REQUIRED(name, ...)                     \
  do {                                          \
    if (!::sinew::device::is_left_out(#name)) { \
      __VA_ARGS__;                              \
    }                                           \
  } while (false)
