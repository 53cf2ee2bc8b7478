// The text of the device sources, for tests that hold them to rules.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace sinew::testing {

struct SourceFile {
  std::string name;  // relative to the source tree
  std::vector<std::string> lines;
};

// kernels/**.cu, .h below kernels/device (the twin aside), and comm/device.
inline std::vector<SourceFile> device_sources() {
  const std::filesystem::path root = SINEW_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const char* folder : {"kernels", "comm"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string name = std::filesystem::relative(entry.path(), root).string();
      const bool source =
          name.ends_with(".cu") || (name.starts_with("comm/device/") && name.ends_with(".cc"));
      const bool header = name.ends_with(".h") &&
                          (name.starts_with("kernels/device/") || name.starts_with("comm/device/"));
      if ((!source && !header) || name.starts_with("kernels/device/twin/")) continue;
      SourceFile file{name, {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  return files;
}

// The name in REQUIRED(name, ...) on this line; empty when there is none.
inline std::string required_name(const std::string& line) {
  constexpr std::string_view kOpening = "REQUIRED(";
  const std::size_t begin = line.find(kOpening);
  const std::size_t end = line.find(',', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return line.substr(begin + kOpening.size(), end - begin - kOpening.size());
}

// These define REQUIRED and name nothing.
inline bool names_required(const SourceFile& file) {
  return file.name != "kernels/device/gpu/thread.h" && file.name != "kernels/device/required.h";
}

}  // namespace sinew::testing
