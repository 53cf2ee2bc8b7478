// What commands write: bad input and failed runs leave what was there, and a full disk is one line.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "sched/base/error.h"
#include "tests/tools/json_text.h"
#include "tests/tools/process.h"
#include "tools/output.h"

namespace sinew::test {
namespace {

TEST(Output, ReplacesItsFileOnlyWhenKept) {
  const TestFolder folder;
  const std::string path = folder.write("file", "before");
  {
    tools::Output output("--json", path);
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
    output.write("after");
    EXPECT_EQ(folder.read("file"), "before");
  }
  EXPECT_EQ(folder.read("file"), "before");
  EXPECT_EQ(folder.read("file.partial"), "after");  // a run that did not end well loses nothing
  tools::Output output("--json", path);
  output.keep("later");
  EXPECT_EQ(folder.read("file"), "later");
  EXPECT_EQ(folder.read("file.partial"), "after");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial2"));
}

TEST(Output, FollowsALink) {
  const TestFolder folder;
  const std::string path = folder.write("file", "before");
  std::filesystem::create_symlink(path, folder.path("link"));
  tools::Output("--json", folder.path("link")).keep("after");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link")));
  EXPECT_EQ(folder.read("file"), "after");
}

// Where standard output goes to a file or a pipe, that has the table and the records.
TEST(Output, WritesBesideWhatIsPrinted) {
  const TestFolder folder;
  const std::string file = folder.path("all");
  for (const std::string& rest :
       {"/dev/stdout > " + file, "/dev/stdout | cat > " + file, file + " > " + file}) {
    const Outcome outcome =
        run_process({"bash", "-c",
                     "set -o pipefail; " SINEW_BINARY_DIR
                     "/sinew verify --op all_reduce,barrier --algo binomial --world 2 --json " +
                         rest},
                    30000);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string text = folder.read("all");
    for (const char* part : {"operation ", "\nall_reduce ", "\n{\"op\": \"all_reduce\"",
                             "\nbarrier ", "\n{\"op\": \"barrier\""})
      EXPECT_NE(text.find(part), std::string::npos) << rest << part << text;
  }
}

TEST(Output, LeavesAFileOfTheNameThatItTakesMeanwhile) {
  const TestFolder folder;
  folder.write("file.partial", "mine");
  tools::Output first("--json", folder.path("file"));
  tools::Output second("--json", folder.path("file"));
  first.write("first");
  second.write("second");
  first.keep();
  EXPECT_EQ(folder.read("file"), "first");
  second.keep();
  EXPECT_EQ(folder.read("file"), "second");
  EXPECT_EQ(folder.read("file.partial"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder.path("file.partial2")));
}

TEST(Output, ExportFollowsALinkToo) {
  const TestFolder folder;
  const std::string text = folder.write("text.txt", std::string(2000, 'x'));
  ASSERT_EQ(run_sinew("train --model byte-tiny --seq 16 --steps 1 --eval-windows 1 --data " + text +
                      " --out " + folder.path("run"))
                .exit_code,
            0);
  folder.write("store/weights.safetensors", "");
  folder.write("store/weights.safetensors.partial", "mine");
  std::filesystem::create_symlink(folder.path("store/weights.safetensors"),
                                  folder.path("link.safetensors"));
  EXPECT_EQ(run_sinew("export --checkpoint " + folder.path("run") + " --to " +
                      folder.path("link.safetensors"))
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link.safetensors")));
  EXPECT_GT(folder.read("store/weights.safetensors").size(), 1000U);
  EXPECT_EQ(folder.read("store/weights.safetensors.partial"), "mine");
}

TEST(Output, RefusesWhatCannotBecomeAFile) {
  const TestFolder folder;
  const std::string file = folder.write("file", "");
  for (const std::string& path :
       {folder.path(""), folder.path("no/x"), file + "/x", folder.path("no/"),
        folder.path(std::string(300, 'x')), std::string("/proc/x")})
    EXPECT_THROW(tools::Output("--json", path).keep("x"), Error) << path;
  for (const std::string& path :
       {folder.path(""), folder.path("no/x"), file + "/x", std::string("/proc/x")})
    EXPECT_THROW(tools::Output("--json", path), UsageError) << path;
}

// Each option that names a file to write, with what else its command needs.
struct Writer {
  std::string arguments;
  std::string option;
  int ranks = 0;  // 0: without mpirun
};
const std::vector<Writer> kWriters = {
    {"topo", "--json"},
    {"doctor", "--json"},
    {"explain", "--json"},
    {"explain", "--svg"},
    {"explain --list", "--json"},
    {"plan --model byte-small", "--json"},
    {"verify --world 2", "--json"},
    {"simulate --world 2 --algo ring", "--json"},
    {"simulate --world 2 --algo ring", "--svg"},
    {"simulate --world 2 --algo ring", "--trace"},
    {"simulate --op pipeline --algo 1f1b", "--svg"},
    {"topo --ranks", "--json", 1},
    {"coll --bytes 8 --budget-ms 0.1", "--json", 1},
    {"coll --device twin --bytes 8 --budget-ms 0.1", "--json", 1},
    {"p2p --bytes 8 --budget-ms 0.1", "--json", 2},
    {"tune --op barrier --bytes 8 --budget-ms 0.1 --out /dev/null", "--json", 2},
    {"tune --op barrier --bytes 8 --budget-ms 0.1", "--out", 2},
};

// Each with a path of its own; what path_of takes is the number of the writer.
std::vector<Outcome> run_writers(const std::function<std::string(std::size_t)>& path_of) {
  std::vector<Outcome> outcomes(kWriters.size());
  run_at_once(kWriters.size(), [&](std::size_t i) {
    const Writer& writer = kWriters[i];
    const std::string arguments = writer.arguments + " " + writer.option + " " + path_of(i);
    outcomes[i] =
        writer.ranks == 0 ? run_sinew(arguments) : run_sinew_ranks(writer.ranks, arguments);
  });
  return outcomes;
}

TEST(Output, EveryWriterWritesItsFileWhole) {
  const TestFolder folder;
  const auto name_of = [](std::size_t i) { return "out" + std::to_string(i); };
  const std::vector<Outcome> outcomes =
      run_writers([&](std::size_t i) { return folder.path(name_of(i)); });
  for (std::size_t i = 0; i < kWriters.size(); ++i) {
    const Writer& writer = kWriters[i];
    EXPECT_EQ(outcomes[i].exit_code, 0) << writer.arguments << outcomes[i].err;
    const std::string text = folder.read(name_of(i));
    EXPECT_NE(text, "") << writer.arguments;
    EXPECT_FALSE(std::filesystem::exists(folder.path(name_of(i)) + ".partial"));
    if (writer.option != "--json") continue;
    EXPECT_FALSE(json_lines(text).empty()) << writer.arguments;
  }
}

TEST(Output, EveryWriterFindsABadPathBeforeItPrints) {
  const std::vector<Outcome> outcomes =
      run_writers([](std::size_t) { return "/no/such/folder/x"; });
  for (std::size_t i = 0; i < kWriters.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    EXPECT_EQ(outcome.exit_code, 2) << kWriters[i].arguments;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "") << kWriters[i].arguments;
    EXPECT_NE(outcome.err.find(kWriters[i].option + " '/no/such/folder/x'"), std::string::npos)
        << outcome.err;
  }
}

TEST(Output, AFullDiskIsOneLineForEveryWriter) {
  const std::vector<Outcome> outcomes = run_writers([](std::size_t) { return "/dev/full"; });
  for (std::size_t i = 0; i < kWriters.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    EXPECT_EQ(outcome.exit_code, 1) << kWriters[i].arguments;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("No space left"), std::string::npos) << outcome.err;
  }
}

TEST(Output, BadInputLeavesWhatWasThere) {
  const TestFolder folder;
  const std::string kept = folder.write("kept", "before");
  for (const std::string& arguments :
       {"plan --memory x --json " + kept, "simulate --bytes 8x --json " + kept,
        "simulate --algo ring --json " + kept + " --svg /no/such/folder/x",
        "simulate --algo ring --svg " + kept + " --trace /no/such/folder/x",
        "simulate --file /no/such --json " + kept, "verify --world 0 --json " + kept,
        "explain --op pipeline --algo 1f1b --times 1,2 --svg " + kept}) {
    const Outcome outcome = run_sinew(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_EQ(folder.read("kept"), "before") << arguments;
    EXPECT_FALSE(std::filesystem::exists(kept + ".partial")) << arguments;
  }
}

}  // namespace
}  // namespace sinew::test
