// README.md's figures are those of bench/results and of the program: nobody writes them by hand.
#include <gtest/gtest.h>

#include <string>

#include "tests/tools/process.h"

namespace sinew::test {
namespace {

bool has_python() { return run_process({"python3", "--version"}, 10000).exit_code == 0; }

Outcome report(const std::string& root, const std::string& arguments) {
  return run_process(
      {"bash", "-c",
       "SINEW=" SINEW_BINARY_DIR "/sinew exec python3 " + root + "/tools/report.py " + arguments},
      20000);
}

TEST(Report, ReadmeSaysWhatWasMeasuredAndGenerated) {
  if (!has_python()) GTEST_SKIP() << "needs python3";
  const Outcome outcome = report(SINEW_SOURCE_DIR, "--check");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

// What the report reads and writes, copied below `folder`, then changed by `change`.
std::string copied_tree(const TestFolder& folder, const std::string& change) {
  const std::string copy = folder.path("tree");
  const Outcome copied =
      run_process({"bash", "-c",
                   "cd " SINEW_SOURCE_DIR " && mkdir " + copy +
                       " && cp --parents -r README.md {sched,kernels,bench}/README.md tools/*.py "
                       "bench/results " +
                       copy + " && cd " + copy + " && " + change},
                  10000);
  EXPECT_EQ(copied.exit_code, 0) << copied.err;
  return copy;
}

TEST(Report, AChangedFigureIsFoundAndMended) {
  if (!has_python()) GTEST_SKIP() << "needs python3";
  const TestFolder folder;
  const std::string copy = copied_tree(
      folder, "sed -i 's/proved for 64/proved for 65/; s/ 8 B | 0/ 8 B | 7/' README.md");
  const Outcome found = report(copy, "--check");
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_NE(found.err.find("verify"), std::string::npos) << found.err;
  EXPECT_NE(found.err.find("coll"), std::string::npos) << found.err;
  EXPECT_EQ(report(copy, "").exit_code, 0);
  EXPECT_EQ(report(copy, "--check").exit_code, 0);
}

// The records of one machine stand in for those of another that differs in its vectors.
const std::string kSecondMachine =
    "cd bench/results && rm -rf avx2 && cp -r avx512bf16 avx2 && sed -i 's/isa avx512bf16/isa "
    "avx2/' "
    "avx2/*.json && sed -i 's/, \"avx512\", \"avx512bf16\"//' avx2/step.jsonl";

TEST(Report, MachinesOfTwoKindsStandSideBySide) {
  if (!has_python()) GTEST_SKIP() << "needs python3";
  const TestFolder folder;
  const std::string copy = copied_tree(folder, kSecondMachine);
  const Outcome outcome = report(copy, "");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string readme = folder.read("tree/kernels/README.md");
  for (const std::string isa : {"avx512bf16", "avx2"}) {
    EXPECT_NE(readme.find("- " + isa + ", caches of "), std::string::npos) << isa;
    EXPECT_NE(readme.find("| f32 0.75, bf16 0.60 | " + isa + " |"), std::string::npos) << isa;
    EXPECT_NE(readme.find("| kernel, " + isa + " |"), std::string::npos) << isa;
  }
}

TEST(Report, RecordsOfTwoMachinesInOneFolderAreRefused) {
  if (!has_python()) GTEST_SKIP() << "needs python3";
  for (const std::string strange :
       {"cp avx512bf16/gemm_f32.json avx2", "cp avx512bf16/step.jsonl avx2",
        "sed -i 's/caches [^;]*;/caches 16 KiB 1 MiB 8 MiB;/' avx2/gemm_2.json"}) {
    const TestFolder folder;
    const std::string copy = copied_tree(folder, kSecondMachine + " && " + strange);
    const Outcome outcome = report(copy, "");
    EXPECT_EQ(outcome.exit_code, 1) << strange;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("results/avx2/"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace sinew::test
