// The interpreter itself: what it knows, what it refuses, and that it notices what is wrong with a
// kernel's text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sched/base/error.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/ptx/memory.h"
#include "tests/gpu/ptx/settings.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

TEST(Ptx, EveryInstructionOfEveryKernelIsKnown) {
  ptx::Interpreter interpreter({ptx::current_settings().folder, false, {}});
  const std::vector<std::string> entries = interpreter.entries();
  EXPECT_GT(entries.size(), 100U);
  for (const std::string& entry : entries) {
    EXPECT_NO_THROW(static_cast<void>(interpreter.function(entry))) << entry;
  }
}

// What the interpreter says of a kernel with this body.
std::string refusal_of(const std::string& body) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("sinew-ptx-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "one.ptx")
      << ".version 9.0\n.target sm_80\n.visible .entry kernel(\n\t.param .u64 kernel_0\n)\n{\n"
      << "\t.reg .b32 %r<3>;\n"
      << body << "\n\tret;\n}\n";
  std::string said;
  try {
    ptx::Interpreter interpreter({folder.string(), false, {}});
    static_cast<void>(interpreter.function("kernel"));
  } catch (const Error& error) {
    said = error.what();
  }
  std::filesystem::remove_all(folder);
  return said;
}

TEST(Ptx, WhatIsNotKnownIsRefusedWithItsNameAndLine) {
  EXPECT_EQ(refusal_of("\tadd.s32 %r1, %r2, 1;"), "");
  EXPECT_NE(refusal_of("\tdp4a.s32.s32 %r1, %r2, 1, %r1;").find("one.ptx:8: 'dp4a.s32.s32'"),
            std::string::npos);
  EXPECT_NE(refusal_of("\tadd.sat.s32 %r1, %r2, 1;").find("'add.sat.s32'"), std::string::npos);
  EXPECT_NE(refusal_of("\tadd.f16 %r1, %r2, 1;").find("'add.f16'"), std::string::npos);
  EXPECT_NE(refusal_of("\tmov.u32 %r1, %clock;").find("'%clock'"), std::string::npos);
  EXPECT_NE(refusal_of("\tld.generic.u32 %r1, [%r2];").find("'ld.generic.u32'"), std::string::npos);
  EXPECT_NE(refusal_of("\tbra $L__1;").find("no label $L__1"), std::string::npos);
  EXPECT_NE(refusal_of("\t.const .b32 x;").find("directive '.const"), std::string::npos);
}

bool is_right(bool (*scenario)(device::Stream&), const twin::Config& config) {
  const twin::Scope scope(config);
  try {
    device::Stream stream;
    return scenario(stream);
  } catch (const device::Error&) {
    return false;
  }
}

// Under weak memory a schedule has so many seeds.
constexpr std::uint64_t kWeakSeeds = 10;

// Whether any of the schedules and seeds shows that the scenario's kernels are no longer right.
bool is_noticed(bool (*scenario)(device::Stream&), const ptx::Change& change, bool weak) {
  ptx::Interpreter interpreter({ptx::current_settings().folder, weak, change});
  for (std::uint64_t seed = 0; seed < (weak ? kWeakSeeds : 1); ++seed) {
    for (twin::Config config : testing::schedules()) {
      config.seed += seed;
      config.spin_limit_s = 1;
      config.interpreter = &interpreter;
      if (!is_right(scenario, config) || interpreter.overtaking_stores() > 0) return true;
    }
  }
  return false;
}

struct Mutant {
  bool (*scenario)(device::Stream&);
  ptx::Change change;
  bool weak;
};

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> kMutants = {
      {testing::layer_norm_scenario, {"bar.sync", ""}, false},
      {testing::column_sums_scenario, {"bar.sync", ""}, false},
      {testing::embedding_scenario, {"bar.sync", ""}, false},
      {testing::gemm_mma_scenario, {"bar.sync", ""}, false},
      {testing::gemm_mma_scenario, {"cp.async.wait_group", ""}, false},
      {testing::gemm_mma_scenario, {"cp.async.commit_group", ""}, false},
      {testing::gemm_mma_scenario,
       {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16"},
       false},
      {testing::attention_scenario, {"cp.async.wait_group", ""}, false},
      {testing::attention_scenario, {"bar.sync", ""}, false},
      {testing::resident_scenario,
       {"st.release.sys.global.u64", "st.relaxed.sys.global.u64"},
       true},
      {testing::messages_scenario,
       {"st.release.sys.global.u64", "st.relaxed.sys.global.u64"},
       true},
      {testing::resident_scenario,
       {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
       true},
      {testing::messages_scenario,
       {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64"},
       true},
  };
  return kMutants;
}

// Of the kernels that exist on compute capability 9.0 alone.
const std::vector<Mutant>& wgmma_mutants() {
  static const std::vector<Mutant> kMutants = {
      {testing::gemm_wgmma_scenario, {"wgmma.wait_group.sync.aligned", ""}, false},
      {testing::gemm_wgmma_scenario, {"wgmma.commit_group.sync.aligned", ""}, false},
      {testing::gemm_wgmma_scenario, {"mbarrier.arrive.shared::cta.b64", ""}, false},
      {testing::gemm_wgmma_scenario, {"mbarrier.init.shared::cta.b64", ""}, false},
  };
  return kMutants;
}

TEST(Ptx, WhatOrdersThreadsIsMissedWhenLeftOut) {
  std::vector<Mutant> all = mutants();
  if (device::properties().major == 9)
    all.insert(all.end(), wgmma_mutants().begin(), wgmma_mutants().end());
  for (const Mutant& mutant : all) {
    EXPECT_TRUE(is_noticed(mutant.scenario, mutant.change, mutant.weak))
        << mutant.change.opcode << " -> '" << mutant.change.replacement << "' is not noticed";
  }
}

// Not only all of a kernel's together. Of the interpreter of schedules one is that behind which a
// sender stores, the other that behind which a receiver loads; the kernel of a message has one.
TEST(Ptx, EveryAcquireAloneIsMissedWhenItIsRelaxed) {
  const auto is_missed = [](bool (*scenario)(device::Stream&), int only) {
    return is_noticed(scenario, {"ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64", only},
                      true);
  };
  EXPECT_TRUE(is_missed(testing::resident_scenario, 0));
  EXPECT_TRUE(is_missed(testing::resident_scenario, 1));
  EXPECT_TRUE(is_missed(testing::messages_scenario, 0));
}

TEST(Ptx, ScenariosAreRightWhenNothingIsChanged) {
  for (const testing::Scenario& scenario : testing::kScenarios) {
    // Kernels of wgmma exist on compute capability 9.0 alone.
    if (scenario.file == "kernels/gemm_wgmma.cu" && device::properties().major != 9) continue;
    for (const bool weak : {false, true}) {
      ptx::Interpreter interpreter({ptx::current_settings().folder, weak, {}});
      for (twin::Config config : testing::schedules()) {
        config.interpreter = &interpreter;
        EXPECT_TRUE(is_right(scenario.run, config))
            << scenario.file << (weak ? ", weak memory: " : ": ") << twin::describe(config);
      }
      EXPECT_GT(interpreter.launches(), 0U) << scenario.file;
      EXPECT_EQ(interpreter.overtaking_stores(), 0U) << scenario.file;
    }
  }
}

// The law of a release, on two threads of different blocks: who sees the flag sees what was stored
// before it.
TEST(Ptx, WeakStoresAreSeenInOrderOnlyWhenReleased) {
  int out_of_order = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (const bool releases : {false, true}) {
      ptx::History history;
      ptx::Memory memory(&history, seed);
      ptx::BlockView block;
      ptx::View view = memory.view_of(block);
      alignas(8) char words[16] = {};
      const std::uint64_t one = 1;
      memory.store(view, words, &one, 8);
      if (releases) memory.release(view);
      memory.store(view, words + 8, &one, 8);
      std::uint64_t own = 0;
      memory.load(view, words, &own, 8);
      EXPECT_EQ(own, 1U) << "a thread sees its own stores";
      for (int turn = 0; turn < 4; ++turn) {
        if (words[8] == 1 && words[0] == 0) {
          EXPECT_FALSE(releases) << "seed " << seed;
          ++out_of_order;
        }
        memory.turn(view);
      }
    }
  }
  EXPECT_GT(out_of_order, 20);
}

// The law of an acquire: who saw the flag without one may find older data behind it, also beyond a
// barrier; with one it never does, and neither does who meets it at a barrier.
TEST(Ptx, PlainLoadsAreOlderThanTheFlagOnlyWithoutAnAcquire) {
  std::array<int, 2> older{};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (const bool acquires : {false, true}) {
      ptx::History history;
      ptx::Memory writes(&history, seed);
      ptx::Memory reads(&history, seed + 1000);
      ptx::BlockView writer_block, reader_block;
      ptx::View writer = writes.view_of(writer_block);
      ptx::View waits = reads.view_of(reader_block);
      ptx::View uses = reads.view_of(reader_block);  // another thread of its block
      alignas(8) char words[24] = {};
      const std::uint64_t one = 1;
      writes.store(writer, words, &one, 8);
      writes.release(writer);
      writes.store(writer, words + 8, &one, 8);
      writes.release(writer);
      reads.store(uses, words + 16, &one, 8);  // its own
      reads.release(uses);
      std::uint64_t flag = 0, data = 0, behind = 0, own = 0;
      reads.load(waits, words + 8, &flag, 8);
      EXPECT_EQ(flag, 1U);
      if (acquires) reads.acquire(waits);
      reads.load_plain(waits, words, &data, 8);
      reads.share(waits);
      reads.share(uses);
      reads.learn(uses);
      reads.load_plain(uses, words, &behind, 8);
      reads.load_plain(uses, words + 16, &own, 8);
      EXPECT_EQ(own, 1U) << "a block sees its own stores";
      if (acquires) {
        EXPECT_EQ(data, 1U) << "seed " << seed;
        EXPECT_EQ(behind, 1U) << "seed " << seed;
      }
      older[0] += data == 0 ? 1 : 0;
      older[1] += behind == 0 ? 1 : 0;
    }
  }
  for (const int count : older) EXPECT_GT(count, 20);
}

// Where a thread stores what another block has loaded, behind a flag that it has acquired or only
// seen.
TEST(Ptx, StoresOvertakeLoadsOfOthersOnlyWithoutAnAcquire) {
  for (const bool acquires : {false, true}) {
    ptx::History history;
    ptx::Memory memory(&history, 1);
    ptx::BlockView reader_block, writer_block;
    ptx::View reader = memory.view_of(reader_block);
    ptx::View writer = memory.view_of(writer_block);
    alignas(8) char words[16] = {};
    const std::uint64_t one = 1;
    std::uint64_t value = 0;
    memory.store(reader, words + 8, &one, 8);  // time passes, which the writer knows nothing of
    memory.release(reader);
    memory.load_plain(reader, words, &value, 8);
    memory.store(reader, words + 8, &one, 8);
    memory.release(reader);
    memory.store(reader, words, &one, 8);
    EXPECT_EQ(history.overtaking(), 0U) << "its own loads are before its stores";
    memory.load(writer, words + 8, &value, 8);
    if (acquires) memory.acquire(writer);
    memory.store(writer, words, &one, 4);
    EXPECT_EQ(history.overtaking(), acquires ? 0U : 1U);
  }
}

}  // namespace
}  // namespace sinew
