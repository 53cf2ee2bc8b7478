// The helper that the command line's tests trust: exit codes, output, deadline.
#include "tests/tools/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

namespace sinew::test {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void become(const std::vector<std::string>& command, const std::string& folder,
                         int out, int err) {
  setpgid(0, 0);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  if (chdir(folder.c_str()) == 0) execvp(arguments[0], arguments.data());
  _exit(127);
}

// Reads both pipes until both ends are closed or the deadline has passed. Returns false at the
// deadline.
bool drain(int out, int err, Clock::time_point deadline, Outcome& outcome) {
  std::array<pollfd, 2> ends = {{{out, POLLIN, 0}, {err, POLLIN, 0}}};
  const std::array<std::string*, 2> texts = {&outcome.out, &outcome.err};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(ends.data(), ends.size(), static_cast<int>(left)) <= 0) return false;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t got = read(ends[i].fd, buffer.data(), buffer.size());
      if (got > 0) texts[i]->append(buffer.data(), static_cast<std::size_t>(got));
      if (got <= 0) ends[i].fd = -1;
    }
  }
  return true;
}

}  // namespace

Outcome run_process(const std::vector<std::string>& command, int timeout_ms,
                    const std::string& folder) {
  Outcome outcome;
  std::array<int, 2> out = {};
  std::array<int, 2> err = {};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) return outcome;
  const pid_t child = fork();
  if (child == 0) become(command, folder, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  outcome.timed_out =
      !drain(out[0], err[0], Clock::now() + std::chrono::milliseconds(timeout_ms), outcome);
  if (outcome.timed_out) kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  close(out[0]);
  close(err[0]);
  return outcome;
}

Outcome run_sinew(const std::string& arguments, int timeout_ms) {
  return run_process({"bash", "-c", "exec " SINEW_BINARY_DIR "/sinew " + arguments}, timeout_ms);
}

Outcome run_sinew_ranks(int ranks, const std::string& arguments, int timeout_ms) {
  // Open MPI gives ranks a second to end when one has failed. A shorter time ends its PMIx server
  // while that still learns of their death, and one launch in a hundred then waits for itself.
  const std::string launch = SINEW_SOURCE_DIR "/tools/mpirun.sh -n " + std::to_string(ranks);
  return run_process({"bash", "-c", "exec " + launch + " " SINEW_BINARY_DIR "/sinew " + arguments},
                     timeout_ms);
}

void run_at_once(std::size_t count, const std::function<void(std::size_t)>& run) {
  constexpr std::size_t kAtOnce = 6;
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < std::min(kAtOnce, count); ++i) {
    threads.emplace_back([&] {
      for (std::size_t item = next++; item < count; item = next++) run(item);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TestFolder::TestFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "sinew-test-XXXXXX").string();
  if (mkdtemp(name.data()) != nullptr) root_ = name;
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  if (!root_.empty()) std::filesystem::remove_all(root_, ignored);
}

std::string TestFolder::write(const std::string& name, const std::string& text) const {
  std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string TestFolder::read(const std::string& name) const {
  std::ifstream file(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int count_lines(const std::string& text) {
  int lines = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) ++lines;
  return lines;
}

namespace {

TEST(Process, ReportsExitCodeAndBothStreams) {
  const Outcome outcome = run_process({"bash", "-c", "echo one; echo two >&2; exit 7"}, 5000);
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out, "one\n");
  EXPECT_EQ(outcome.err, "two\n");
  EXPECT_FALSE(outcome.timed_out);
}

TEST(Process, KillsAtTheDeadlineWithEverythingItStarted) {
  const auto begin = Clock::now();
  const Outcome outcome = run_process({"bash", "-c", "sleep 60 & sleep 60"}, 100);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
}

TEST(Process, CountsLines) {
  EXPECT_EQ(count_lines(""), 0);
  EXPECT_EQ(count_lines("a\n"), 1);
  EXPECT_EQ(count_lines("a\nb"), 2);
}

// Nobody waits for the rank that dies, so that none of its peers can tell of it.
TEST(Launcher, SaysWhichSignalEndedARank) {
  const std::string rank = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then kill -KILL $$; fi; sleep 30";
  const Outcome outcome =
      run_process({SINEW_SOURCE_DIR "/tools/mpirun.sh", "-n", "2", "bash", "-c", rank}, 20000);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_EQ(outcome.err, "mpirun.sh: a rank was ended by signal 9, KILL\n");
}

// What mpirun says of a program that is not there is like what it says of a signal.
TEST(Launcher, NamesNoSignalWhereThereIsNoProgram) {
  for (const std::string& words : {std::string(), std::string(" -n 2 /no/such/program topo"),
                                   std::string(" --host localhost -n 2")}) {
    const Outcome outcome =
        run_process({"bash", "-c", SINEW_SOURCE_DIR "/tools/mpirun.sh" + words}, 20000);
    EXPECT_EQ(outcome.exit_code, 2) << words;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("no word of '" + words.substr(words.empty() ? 0 : 1) + "'"),
              std::string::npos)
        << outcome.err;
  }
}

// As `mpirun.sh ... | head -1`: Open MPI alone would print twenty lines.
TEST(Launcher, EndsInSilenceWhenNobodyReadsOn) {
  const Outcome outcome =
      run_process({"bash", "-c",
                   SINEW_SOURCE_DIR
                   "/tools/mpirun.sh -n 2 bash -c 'while :; do echo line; done' | head -n 1; exit "
                   "${PIPESTATUS[0]}"},
                  20000);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(outcome.out, "line\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(Launcher, SaysThatStandardOutputIsFullAndPassesAllOnOtherwise) {
  const std::string script = SINEW_SOURCE_DIR "/tools/mpirun.sh -n 1 bash -c ";
  const Outcome full =
      run_process({"bash", "-c", script + "'echo line; sleep 30' > /dev/full"}, 20000);
  EXPECT_FALSE(full.timed_out);
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_EQ(full.err, "mpirun.sh: standard output cannot be written\n");
  const Outcome whole = run_process({"bash", "-c", script + "'seq 20000; exit 3'"}, 20000);
  EXPECT_EQ(whole.exit_code, 3);
  EXPECT_EQ(count_lines(whole.out), 20000);
}

// Stands for mpirun: notes every SIGTERM in a file and lives until it has had one, and a moment
// longer.
std::string noting_launcher(const TestFolder& folder) {
  std::string path =
      folder.write("launcher", "#!/bin/bash\ntrap 'echo TERM >> " + folder.path("noted") +
                                   "' TERM\necho up >> " + folder.path("up") +
                                   "\nfor ((i = 0; i < 300; ++i)); do\n"
                                   "  sleep 0.1\n  [[ -s " +
                                   folder.path("noted") + " ]] && { sleep 0.5; exit 0; }\ndone\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

// Starts mpirun.sh with that launcher, waits until it is up, then goes on with `then`, which knows
// the script as $script.
Outcome with_noting_launcher(const TestFolder& folder, const std::string& prefix,
                             const std::string& then) {
  return run_process({"bash", "-c",
                      "export MPIRUN=" + noting_launcher(folder) + "; " + prefix +
                          SINEW_SOURCE_DIR "/tools/mpirun.sh -n 2 true & script=$!; until [ -s " +
                          folder.path("up") + " ]; do sleep 0.1; done; " + then},
                     20000);
}

// A whole group of processes gets the signal, as from a terminal or from timeout. Open MPI leaves
// ranks and files where they are when it is told twice.
TEST(Launcher, HasASignalOfTheGroupOnce) {
  const TestFolder folder;
  const Outcome outcome =
      with_noting_launcher(folder, "setsid ", "kill -TERM -- -$script; wait $script");
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
  EXPECT_EQ(folder.read("noted"), "TERM\n");
}

// As from timeout, which tells its child and then the whole group: the second comes at any moment
// of the first one's handling.
TEST(Launcher, StandsAShowerOfSignals) {
  for (int round = 0; round < 5; ++round) {
    const TestFolder folder;
    const Outcome outcome = with_noting_launcher(
        folder, "", "for ((i = 0; i < 300; ++i)); do kill -TERM $script; done; wait $script");
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.err;
    EXPECT_EQ(folder.read("noted"), "TERM\n");
  }
}

TEST(Launcher, IsAskedToEndByAQuitToo) {
  const TestFolder folder;
  const Outcome outcome = with_noting_launcher(folder, "env --default-signal=QUIT ",
                                               "kill -QUIT $script; wait $script");
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 128 + SIGQUIT);
  EXPECT_EQ(folder.read("noted"), "TERM\n");
}

// A launcher that does not end, as Open MPI's where /tmp is full.
TEST(Launcher, IsKilledByALaterSignal) {
  const TestFolder folder;
  const std::string stuck = folder.write(
      "stuck", "#!/bin/bash\ntrap '' TERM\necho up > " + folder.path("up") + "\nsleep 60\n");
  std::filesystem::permissions(stuck, std::filesystem::perms::owner_all);
  const Outcome outcome = run_process(
      {"bash", "-c",
       "MPIRUN=" + stuck +
           " " SINEW_SOURCE_DIR "/tools/mpirun.sh -n 2 true & script=$!; until [ -s " +
           folder.path("up") +
           " ]; do sleep 0.1; done; while kill -TERM $script 2>/dev/null; do sleep 0.5; done; "
           "wait $script"},
      20000);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM);
}

TEST(Launcher, IsToldWhenItsScriptIsKilled) {
  const TestFolder folder;
  const Outcome outcome = with_noting_launcher(
      folder, "",
      "kill -KILL $script; until [ -s " + folder.path("noted") + " ]; do sleep 0.1; done");
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(folder.read("noted"), "TERM\n");
}

}  // namespace
}  // namespace sinew::test
