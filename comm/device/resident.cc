#include "comm/device/resident.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "comm/error.h"
#include "kernels/reduce_gpu.h"
#include "sched/base/check.h"
#include "sched/verify.h"

namespace sinew::comm {

namespace {

constexpr unsigned kThreadsMax = 512;

void require(bool legal, const char* name, std::int64_t value, const std::string& rule) {
  if (!legal) {
    throw UsageError("resident collectives: " + std::string(name) + " " + std::to_string(value) +
                     " is out of range; legal values: " + rule);
  }
}

template <typename T>
device::Memory upload(const std::vector<T>& values, device::Stream& stream) {
  device::Memory memory(values.size() * sizeof(T));
  stream.copy(memory.data(), values.data(), memory.size_bytes());
  return memory;
}

std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }

}  // namespace

void require_legal(const ResidentOptions& options, int world) {
  require(world <= kLinkWorldMax, "world", world, "1 to " + std::to_string(kLinkWorldMax));
  const int blocks = device::properties().multiprocessors;
  require(options.channels >= 1 && options.channels <= blocks, "channels", options.channels,
          "1 to " + std::to_string(blocks) + ", the blocks that run at once");
  require(options.slots >= 1, "slots", options.slots, "1 or more");
  require(options.slot_bytes >= 128 && options.slot_bytes % 128 == 0, "slot_bytes",
          options.slot_bytes, "multiples of 128");
  require(options.threads % 32 == 0 && options.threads >= 32 && options.threads <= kThreadsMax &&
              options.threads >= static_cast<unsigned>(world),
          "threads", options.threads,
          "multiples of 32 up to " + std::to_string(kThreadsMax) + ", no less than the world");
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

Resident::Resident(Bootstrap& bootstrap, const ResidentOptions& options)
    : options_(options), calls_(kCallsKept) {
  require_legal(options, bootstrap.world());
  links_.rank = bootstrap.rank();
  links_.world = bootstrap.world();
  links_.channels = options.channels;
  links_.slots = options.slots;
  links_.slot_bytes = options.slot_bytes;
  memory_ = PeerMemory(bootstrap, static_cast<std::size_t>(links_.size_bytes()));
  for (int r = 0; r < links_.world; ++r) links_.memory[r] = memory_.of(r);
}

void Resident::close(Bootstrap& bootstrap) { memory_.close(bootstrap); }

bool Resident::takes(const sched::Algorithm& row, int root) const {
  const auto [known, unknown] = takes_.try_emplace({&row, root}, false);
  if (!unknown) return known->second;
  const sched::Params params = {.world = links_.world, .root = root};
  if (row.refuse(params).empty()) {
    known->second =
        sched::verify(sched::generate(row, params)).facts.credits_in_order <= links_.slots;
  }
  return known->second;
}

const Resident::Program& Resident::program(const sched::Algorithm& row, int root,
                                           device::Stream& stream) {
  const auto found = programs_.find({&row, root});
  if (found != programs_.end()) return found->second;
  const sched::Schedule schedule = sched::generate(row, {.world = links_.world, .root = root});
  const sched::Verdict verdict = sched::verify(schedule);
  CHECK(verdict.proved());
  const std::string name = std::string(name_of(row.op)) + " by " + std::string(row.name);
  if (verdict.facts.credits_in_order > links_.slots) {
    throw UsageError(name + " needs " + std::to_string(verdict.facts.credits_in_order) +
                     " slots; there are " + std::to_string(links_.slots));
  }
  const sched::Program& own = schedule.programs[static_cast<std::size_t>(links_.rank)];
  Program program{.contract = schedule.contract,
                  .steps = upload(own.steps, stream),
                  .scratch_chunk = upload(own.scratch_chunk, stream)};
  program.step_count = static_cast<int>(own.steps.size());
  program.scratch_slots = static_cast<int>(own.scratch_chunk.size());
  for (const sched::Program& each : schedule.programs) {
    for (const sched::Step& step : each.steps) {
      if (step.verb != sched::Verb::kSend) continue;
      program.chunks_most = std::max(program.chunks_most, int{step.chunks});
      if (step.lane >= kLinkLanes)
        throw UsageError(name + " uses lane " + std::to_string(step.lane) +
                         "; legal values: 0 to " + std::to_string(kLinkLanes - 1));
    }
  }
  for (const sched::Step& step : own.steps) {
    if (step.verb == sched::Verb::kSend) program.chunks_sent += step.chunks;
  }
  stream.synchronize();  // the copies read the schedule
  return programs_.emplace(std::pair{&row, root}, std::move(program)).first->second;
}

std::int64_t Resident::sent_bytes(const sched::Algorithm& row, int root,
                                  const ResidentWork& work) const {
  const Program& program = programs_.at({&row, root});
  const std::int64_t block_bytes = work.count * static_cast<std::int64_t>(size_of(work.dtype));
  return program.chunks_sent * block_bytes / program.contract.chunks_per_block;
}

ResidentCall Resident::call_of(const Program& program, Protocol protocol,
                               const ResidentWork& work) {
  const sched::Contract& contract = program.contract;
  const std::int64_t count = contract.op == sched::Collective::kBarrier ? 0 : work.count;
  const auto element = static_cast<std::int64_t>(size_of(work.dtype));
  const std::int64_t chunk_bytes = divide_up(count, contract.chunks_per_block) * element;
  const std::int64_t units = divide_up(chunk_bytes, kUnitBytes);
  const std::int64_t units_most = units_in(protocol, links_.slot_bytes, program.chunks_most);
  require(units_most > 0, "slot_bytes", links_.slot_bytes,
          "at least " + std::to_string(program.chunks_most * wire_bytes(protocol, 1)) +
              " for this schedule");

  ResidentCall call{};
  call.links = links_;
  call.steps = program.steps.as<sched::Step>();
  call.scratch_chunk = program.scratch_chunk.as<std::uint32_t>();
  call.input = static_cast<const char*>(work.input);
  call.output = static_cast<char*>(work.output);
  call.scratch_stride = units * kUnitBytes;
  const std::int64_t own_block = contract.blocks() == 1 ? 0 : links_.rank * count * element;
  if (contract.op == sched::Collective::kAllGather || contract.op == sched::Collective::kGather)
    call.input_shift = own_block;
  if (contract.op == sched::Collective::kReduceScatter ||
      contract.op == sched::Collective::kScatter)
    call.output_shift = own_block;
  call.count = count;
  call.timeout_ns = static_cast<std::uint64_t>(options_.timeout_s * 1e9);
  call.flag = flag_of(call_count_, history_);
  call.packed = calls_[(call_count_ - 1) % kCallsKept].packed();
  call.step_count = program.step_count;
  call.chunks_per_block = contract.chunks_per_block;
  call.segments = static_cast<int>(
      std::max<std::int64_t>(1, divide_up(divide_up(units, links_.channels), units_most)));
  call.element_bytes = static_cast<int>(element);
  call.dtype = work.dtype;
  call.reduce = work.reduce;

  const auto scratch_bytes = static_cast<std::size_t>(program.scratch_slots * call.scratch_stride);
  if (scratch_bytes > scratch_.size_bytes()) {
    outgrown_.push_back(std::move(scratch_));
    scratch_ = device::Memory(scratch_bytes);
  }
  call.scratch = scratch_.as<char>();
  return call;
}

void Resident::run(const sched::Algorithm& row, int root, Protocol protocol,
                   const ResidentWork& work, device::Stream& stream) {
  if (protocol == Protocol::kLines && !memory_.lines_arrive_whole()) {
    throw UsageError("protocol ll128 needs links that carry 128 bytes whole; " +
                     memory_.describe() + "; legal values: simple, ll");
  }
  const Program& prepared = program(row, root, stream);
  note(row, root, work);
  launch_resident(call_of(prepared, protocol, work), protocol, options_.threads, stream);
  end_average(prepared.contract, work, stream);
}

void Resident::run(const SmallKernel& kernel, const ResidentWork& work, device::Stream& stream) {
  const sched::Algorithm& row = sched::find_algorithm(kernel.op, kernel.algorithm);
  const Program& prepared = program(row, 0, stream);
  note(row, 0, work);
  kernel.launch(call_of(prepared, Protocol::kLowLatency, work), options_.threads, stream);
  end_average(prepared.contract, work, stream);
}

void Resident::note(const sched::Algorithm& row, int root, const ResidentWork& work) {
  CallInfo& call = calls_[call_count_++ % kCallsKept];
  call = {.kind = kind_of(row.op),
          .algorithm = static_cast<std::uint16_t>(sched::index_of(row)),
          .dtype = work.dtype,
          .reduce = work.reduce,
          .root = static_cast<std::uint16_t>(root),
          .count = work.count};
  history_ = history_with(history_, signature_of(call.packed(), call.count));
}

std::string Resident::describe_call(std::uint64_t number) const {
  std::string name = "call " + std::to_string(number);
  if (number == 0 || number > call_count_ || call_count_ - number >= kCallsKept) return name;
  return name + " (" + describe(calls_[(number - 1) % kCallsKept]) + ")";
}

void Resident::end_average(const sched::Contract& contract, const ResidentWork& work,
                           device::Stream& stream) const {
  if (work.reduce != ReduceOp::kAvg || !contract.reduces()) return;
  if (contract.op == sched::Collective::kBarrier) return;
  if (contract.op == sched::Collective::kReduce && contract.root != links_.rank) return;
  kernels::scale(work.dtype, work.output, work.count, links_.world, stream);
}

void Resident::check(device::Stream& stream) {
  std::uint64_t word = 0;
  stream.copy(&word, links_.memory[links_.rank], sizeof word);
  stream.synchronize();
  if (word == 0) return;
  if (abort_is_mismatch(word)) raise_mismatch(word, stream);
  const int waiting = abort_rank(word);
  const int peer = abort_peer(word);
  const std::string gone = memory_.gone(peer);
  throw Error(gone.empty() ? Cause::kTimeout : Cause::kPeerGone, links_.rank, peer,
              "collective on device memory: " + describe_call(abort_call(word)) + ": rank " +
                  std::to_string(waiting) + " waited longer than " +
                  seconds_text(options_.timeout_s) + " for rank " + std::to_string(peer) +
                  (gone.empty() ? "" : ", which " + gone));
}

// Both calls as the two ranks said themselves, to this rank's memory.
void Resident::raise_mismatch(std::uint64_t word, device::Stream& stream) const {
  std::vector<CallPost> posts(static_cast<std::size_t>(links_.world));
  stream.copy(posts.data(), links_.post(links_.rank, 0), posts.size() * sizeof(CallPost));
  stream.synchronize();
  const auto number = static_cast<std::uint32_t>(abort_call(word));
  const auto call_by = [&](int rank) -> std::string {
    if (rank == links_.rank) return describe_call(number);
    const CallPost& post = posts[static_cast<std::size_t>(rank)];
    if (number_in(post.flag) != number) return "another call";
    return "call " + std::to_string(number) + " (" +
           describe(CallInfo::unpack(post.packed, static_cast<std::int64_t>(post.count))) + ")";
  };
  const int rank = abort_rank(word);
  const int peer = abort_peer(word);
  throw Error(Cause::kMismatch, links_.rank, peer,
              "collectives on device memory differ between ranks: rank " + std::to_string(rank) +
                  ": " + call_by(rank) + "; rank " + std::to_string(peer) + ": " + call_by(peer) +
                  "; this call or one before it is not the same on all ranks");
}

}  // namespace sinew::comm
