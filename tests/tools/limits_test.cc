// What a machine or container may withhold: each run works, or ends with one line that names the
// remedy, and `doctor` says so before.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/tools/process.h"

namespace sinew::test {
namespace {

const std::string kSinew = SINEW_BINARY_DIR "/sinew";
const std::string kLaunch = SINEW_SOURCE_DIR "/tools/launch.sh";

std::string ranks(int count, const std::string& arguments) {
  return kLaunch + " -n " + std::to_string(count) + " " + kSinew +
         " coll --check --budget-ms 0.1 " + arguments;
}

Outcome run_shell(const std::string& script) { return run_process({"bash", "-c", script}, 60000); }

// In mounts of its own, which need rights that not every container has.
Outcome run_with_shm(const std::string& options, const std::string& script) {
  return run_process({"unshare", "--mount", "bash", "-c",
                      "mount -t tmpfs -o " + options + " tmpfs /dev/shm && " + script},
                     30000);
}

TEST(Limits, ASmallOrReadOnlyShmIsNotNeededAndDoctorNotesIt) {
  if (run_with_shm("size=1m", "true").exit_code != 0)
    GTEST_SKIP() << "needs the right to mount: unshare --mount, mount -t tmpfs";
  for (const std::string options : {"size=1m", "ro"}) {
    const Outcome coll = run_with_shm(
        options, ranks(3, "--op all_reduce,all_to_all --bytes 8,64K,4M --buffers plain,symmetric"));
    EXPECT_EQ(coll.exit_code, 0) << options << ": " << coll.err;
    const Outcome doctor = run_with_shm(options, kSinew + " doctor");
    EXPECT_NE(doctor.out.find("note /dev/shm"), std::string::npos) << doctor.out;
    EXPECT_NE(doctor.out.find("mount -o remount"), std::string::npos) << doctor.out;
  }
}

// Open MPI would wait without end, or print a page; ranks that it does not start need nothing
// there.
TEST(Limits, AFullTemporaryFolderIsOneLineWhereMpiNeedsItAndDoctorNotesIt) {
  const TestFolder folder;
  const std::string text = folder.write("text.txt", std::string(600, 'a'));
  const std::string mounted = folder.path("full");
  std::filesystem::create_directory(mounted);
  const auto run = [&](const std::string& command) {
    return run_process({"unshare", "--mount", "bash", "-c",
                        "mount -t tmpfs -o size=1m tmpfs " + mounted +
                            " && export TMPDIR=" + mounted + " && " + command},
                       30000);
  };
  if (run("true").exit_code != 0)
    GTEST_SKIP() << "needs the right to mount: unshare --mount, mount -t tmpfs";
  const std::string mpirun = SINEW_SOURCE_DIR "/tools/mpirun.sh -n 2 ";
  for (const std::string& command :
       {mpirun + kSinew + " coll --bytes 8",
        kSinew + " train --model byte-tiny --seq 16 --batch 1 --steps 1 --data " + text}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 1) << command;
    EXPECT_EQ(outcome.out.find("step "), std::string::npos) << outcome.out;
    EXPECT_EQ(count_lines(outcome.err), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("by TMPDIR"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run(ranks(2, "--bytes 8,1M")).exit_code, 0);
  const Outcome doctor = run(kSinew + " doctor");
  EXPECT_NE(doctor.out.find("note MPI"), std::string::npos) << doctor.out;
}

TEST(Limits, SixtyFourOpenFilesAreEnoughForEightRanks) {
  const Outcome coll =
      run_shell("ulimit -n 64; " + ranks(8, "--op all --bytes 8,64K --buffers plain,symmetric"));
  EXPECT_EQ(coll.exit_code, 0) << coll.err;
}

TEST(Limits, OneCoreIsEnoughForThreeRanks) {
  const Outcome coll = run_shell("taskset -c 0 " + ranks(3, "--op all --bytes 8,64K,1M"));
  EXPECT_EQ(coll.exit_code, 0) << coll.err;
  const Outcome doctor = run_shell("taskset -c 0 " + kSinew + " doctor");
  EXPECT_NE(doctor.out.find("note cores"), std::string::npos) << doctor.out;
}

TEST(Limits, AControlGroupOfOneCoreWorksAndDoctorNotesIt) {
  const std::string name = "sinew-limits-" + std::to_string(getpid());
  // Of either version; the group is removed again when its last process has ended.
  const std::string group = "g=/sys/fs/cgroup/" + name +
                            "; [[ -f /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]] && "
                            "g=/sys/fs/cgroup/cpu/" +
                            name +
                            "; [[ -f ${g%/*}/cgroup.procs ]] && mkdir $g 2>/dev/null || exit 77; "
                            "trap 'echo $BASHPID > ${g%/*}/cgroup.procs; rmdir $g' EXIT; "
                            "if [[ -f $g/cpu.max ]]; then echo 100000 100000 > $g/cpu.max; else "
                            "echo 100000 > $g/cpu.cfs_quota_us; fi || exit 77; "
                            "echo $BASHPID > $g/cgroup.procs || exit 77; ";
  const Outcome coll = run_shell(group + ranks(3, "--op all_reduce,all_to_all --bytes 8,64K,1M"));
  if (coll.exit_code == 77) GTEST_SKIP() << "needs a control group with the controller cpu";
  EXPECT_EQ(coll.exit_code, 0) << coll.err;
  const Outcome doctor = run_shell(group + kSinew + " doctor");
  EXPECT_NE(doctor.out.find("note cores"), std::string::npos) << doctor.out;
}

}  // namespace
}  // namespace sinew::test
