// The libraries of wires are loaded when a wire is asked for: a program needs none of them to
// start, and where one is missing that is one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "comm/transport/wire.h"

namespace sinew::comm::testing {
namespace {

const std::string kSource = SINEW_SOURCE_DIR;
const std::string kBinary = SINEW_BINARY_DIR;

struct Said {
  int status = 0;
  std::string text;
};

Said run(const std::string& command) {
  Said said;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) said.text += buffer.data();
  said.status = pclose(pipe);
  return said;
}

TEST(NetLibrary, TheCommandLineAndTheCLibraryStartWithoutAnyWiresLibrary) {
  for (const std::string file : {"/sinew", "/libsinew.so"}) {
    const Said said = run("ldd " + kBinary + file);
    EXPECT_EQ(said.status, 0) << said.text;
    for (const char* library : {"libucp", "libucs", "libibverbs"})
      EXPECT_EQ(said.text.find(library), std::string::npos) << file << ": " << said.text;
  }
}

TEST(NetLibrary, AMissingLibraryIsOneLineThatNamesItAndWhatToInstall) {
  struct Case {
    std::string wire;
    std::string library;
    std::string remedy;
  };
  for (const Case& one : {Case{"ucx", "libucp.so.0", "apt-get install libucx0"},
                          Case{"verbs", "libibverbs.so.1", "apt-get install libibverbs1"}}) {
    const Said said = run("timeout 60 " + kSource + "/tools/mpirun.sh -n 2 " + kSource +
                          "/tests/net/hosts/without_library.sh " + one.library + " " + kBinary +
                          "/sinew topo --ranks --transport " + one.wire);
    if (said.text.find("this build has no") != std::string::npos) {
      std::printf("left out here: %s", said.text.c_str());
      continue;
    }
    EXPECT_NE(said.status, 0);
    EXPECT_EQ(std::count(said.text.begin(), said.text.end(), '\n'), 1) << said.text;
    for (const std::string& words : {one.wire + ": cannot be loaded: ", one.library, one.remedy})
      EXPECT_NE(said.text.find(words), std::string::npos) << said.text;
  }
}

}  // namespace
}  // namespace sinew::comm::testing
