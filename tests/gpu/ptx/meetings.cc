// Where threads meet: barriers, operations of a warp, asynchronous copies.
#include <cstring>

#include "kernels/device/twin/core.h"
#include "kernels/device/twin/warp_functions.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/spaces.h"

namespace sinew::ptx {

namespace {

using twin::Site;

int threads_of(const Thread& thread, const Instruction& i) {
  return i.b < 0 ? 0 : in<std::int32_t>(thread, i.b);
}

void barrier_sync(Thread& thread, const Instruction& i) {
  thread.memory->share(thread.view);
  twin::block_barrier(in<std::int32_t>(thread, i.a), threads_of(thread, i), false, Site::current());
  thread.memory->learn(thread.view);
}
void barrier_arrive(Thread& thread, const Instruction& i) {
  thread.memory->share(thread.view);
  twin::block_arrive(in<std::int32_t>(thread, i.a), threads_of(thread, i), Site::current());
}
void barrier_count(Thread& thread, const Instruction& i) {
  thread.memory->share(thread.view);
  const int votes =
      twin::block_barrier(in<std::int32_t>(thread, i.a), 0, in<bool>(thread, i.b), Site::current());
  thread.memory->learn(thread.view);
  out<std::int32_t>(thread, i.result, votes);
}
void warp_sync(Thread& thread, const Instruction& i) {
  thread.memory->share(thread.view);
  twin::warp_rendezvous(in<std::uint32_t>(thread, i.a), twin::kSyncWarp, nullptr, Site::current());
  thread.memory->learn(thread.view);
}

// bfly over the whole warp; the predicate, where one is wanted, says that the lane was in range.
void shuffle_xor(Thread& thread, const Instruction& i) {
  constexpr std::uint32_t kWholeWarp = 31;
  if (in<std::uint32_t>(thread, i.c) != kWholeWarp)
    twin::fail("shuffles within parts of a warp are not known");
  const std::uint32_t value = twin::shuffle(
      twin::kShuffleXor, in<std::uint32_t>(thread, i.mask), in<std::uint32_t>(thread, i.a),
      in<std::int32_t>(thread, i.b), twin::kWarpLanes, Site::current());
  out<std::uint32_t>(thread, i.result, value);
  if (i.part_count == 1)
    out<bool>(thread, thread.function->parts[static_cast<std::size_t>(i.parts)], true);
}

template <typename Result>
void vote(Thread& thread, const Instruction& i, Result&& result) {
  const auto mask = in<std::uint32_t>(thread, i.mask);
  result(twin::ballot(mask, in<bool>(thread, i.a), Site::current()), mask);
}
void vote_ballot(Thread& thread, const Instruction& i) {
  vote(thread, i,
       [&](std::uint32_t votes, std::uint32_t) { out<std::uint32_t>(thread, i.result, votes); });
}
void vote_all(Thread& thread, const Instruction& i) {
  vote(thread, i, [&](std::uint32_t votes, std::uint32_t mask) {
    out<bool>(thread, i.result, votes == mask);
  });
}
void vote_any(Thread& thread, const Instruction& i) {
  vote(thread, i,
       [&](std::uint32_t votes, std::uint32_t) { out<bool>(thread, i.result, votes != 0); });
}

void perform(Thread& thread, const twin::AsyncCopy& copy) {
  auto* target = static_cast<char*>(copy.target);
  const auto* source = static_cast<const char*>(copy.source);
  std::memset(target, 0, static_cast<std::size_t>(copy.size_bytes));
  const auto count = static_cast<std::size_t>(copy.source_bytes);
  const std::size_t words = count / 8 * 8;
  if (words != 0) thread.memory->load_plain(thread.view, source, target, words);
  for (std::size_t k = words; k < count; ++k)
    thread.memory->load_plain(thread.view, source + k, target + k, 1);
}
void copy_async(Thread& thread, const Instruction& i) {
  constexpr int kCopyBytes = 16;
  twin::AsyncCopy copy{};
  copy.target = shared_place(thread, in<std::uint32_t>(thread, i.result), kCopyBytes);
  copy.source = pointer_operand(thread, i, i.a, kCopyBytes);
  copy.size_bytes = kCopyBytes;
  copy.source_bytes = in<std::int32_t>(thread, i.b);
  if (twin::async_copy_issue(copy, Site::current())) perform(thread, copy);
}
void copy_commit(Thread&, const Instruction&) { twin::async_copy_commit(); }
void copy_wait(Thread& thread, const Instruction& i) {
  while (const twin::AsyncCopy* copy = twin::async_copy_next(in<std::int32_t>(thread, i.a)))
    perform(thread, *copy);
}

void decode_barrier(Reader& reader, Instruction& instruction) {
  if (reader.take("warp")) {
    instruction.a = reader.slot(0);
    if (reader.take("sync")) instruction.run = warp_sync;
    return;
  }
  if (reader.take("red")) {
    instruction.result = reader.slot(0);
    instruction.a = reader.slot(1);
    instruction.b = reader.slot(2);
    if (reader.take("popc") && reader.take_type() == Type::kU32) instruction.run = barrier_count;
    return;
  }
  instruction.a = reader.slot(0);
  if (reader.count() > 1) instruction.b = reader.slot(1);
  if (reader.take("sync")) instruction.run = barrier_sync;
  if (reader.take("arrive")) instruction.run = barrier_arrive;
}

void decode_vote(Reader& reader, Instruction& instruction) {
  if (!reader.take("sync")) return;
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  instruction.mask = reader.slot(2);
  if (reader.take("ballot") && reader.take_type() == Type::kB32) instruction.run = vote_ballot;
  if (reader.take("all") && reader.take_type() == Type::kPred) instruction.run = vote_all;
  if (reader.take("any") && reader.take_type() == Type::kPred) instruction.run = vote_any;
}

void decode_shuffle(Reader& reader, Instruction& instruction) {
  if (!reader.take("sync") || !reader.take("bfly") || reader.take_type() != Type::kB32) return;
  const Operand& results = reader.operand(0);
  instruction.result = reader.slot(0);
  if (results.second >= 0) reader.second(0, instruction);
  instruction.a = reader.slot(1);
  instruction.b = reader.slot(2);
  instruction.c = reader.slot(3);
  instruction.mask = reader.slot(4);
  instruction.run = shuffle_xor;
}

void decode_copy(Reader& reader, Instruction& instruction) {
  if (reader.take("commit_group")) {
    instruction.run = copy_commit;
  } else if (reader.take("wait_group")) {
    instruction.a = reader.slot(0);
    instruction.run = copy_wait;
  } else if (reader.take("cg") && reader.take("shared") && reader.take("global")) {
    if (reader.operand(0).offset != 0 || !reader.is(2, 16)) return;
    reader.address(0, instruction);
    instruction.result = instruction.a;
    reader.address(1, instruction);
    instruction.b = reader.slot(3);
    instruction.run = copy_async;
  }
}

}  // namespace

bool decode_meeting(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family == "bar") {
    decode_barrier(reader, instruction);
  } else if (family == "vote") {
    decode_vote(reader, instruction);
  } else if (family == "shfl") {
    decode_shuffle(reader, instruction);
  } else if (family == "cp" && reader.take("async")) {
    decode_copy(reader, instruction);
    // Copies of boxes are decode_tensor's.
    return instruction.run != nullptr;
  } else {
    return false;
  }
  return true;
}

}  // namespace sinew::ptx
