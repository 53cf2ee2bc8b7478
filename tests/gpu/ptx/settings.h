// What the program's arguments say: which architecture's PTX is run, and how memory behaves.
#pragma once

#include <string>

#include "tests/gpu/ptx/interpreter.h"

namespace sinew::ptx {

struct Settings {
  std::string folder;
  bool weak = false;
};

[[nodiscard]] const Settings& current_settings();

}  // namespace sinew::ptx
