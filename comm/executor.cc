#include "comm/executor.h"

#include <algorithm>
#include <new>

#include "kernels/reduce.h"
#include "kernels/streaming.h"
#include "sched/base/check.h"

namespace sinew::comm {

namespace {

// How many unfinished steps are looked at before going back to the first: bounds the cost of one
// pass when a program is long, and leaves far more than two in flight.
constexpr std::size_t kWindow = 256;

// How much of a message that is not addressable is read at once. To its place: little enough that
// what waits for it can begin, and so much that the call into the kernel costs nothing. To be
// reduced: what fits into the second-level cache (1 MiB) beside the other operands.
constexpr std::int64_t kReadBytes = 1 << 20;
constexpr std::int64_t kTileBytes = 64 << 10;

}  // namespace

void Execution::start(const Work& work) {
  CHECK_EQ(remaining_, 0U);
  CHECK_LE(transport_.traits().credits, kMaxCredits);
  work_ = work;
  element_bytes_ = static_cast<std::int64_t>(size_of(work.dtype));
  first_ = 0;
  sent_bytes_ = 0;
  fault_ = {};
  place_chunks();
  place_scratch();
  work_.counts = work_.output_counts = nullptr;
  // All ranks of a host share its cache: what they touch together counts.
  streams_ = kernels::bypasses_cache(2 * chunk_start_.back() * work.plan->contract.world);
  const Plan& plan = *work.plan;
  states_.resize(plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    State& state = states_[i];
    state.source = address(step.source);
    state.target = address(step.target);
    state.size = size_of_slots(step.source, step.chunks);
    state.issued = state.done = state.used = 0;
    state.oldest = state.newest = 0;
    state.opened = state.complete = false;
  }
  shifts_.resize(plan.dependences.size());
  for (std::size_t i = 0; i < plan.dependences.size(); ++i) {
    const PlanDependence& dependence = plan.dependences[i];
    shifts_[i] = start_of(dependence.earlier_slot) - start_of(dependence.slot);
  }
  operands_.resize(plan.operands.size());
  for (std::size_t i = 0; i < plan.operands.size(); ++i) {
    operands_[i] = {plan.operands[i].is_message ? nullptr : address(plan.operands[i].slot), 0, 0};
  }
  remaining_ = plan.steps.size();
}

void Execution::place_chunks() {
  const sched::Contract& contract = work_.plan->contract;
  place_blocks(work_.counts, chunk_start_);
  output_start_.clear();
  if (work_.output_counts != nullptr) place_blocks(work_.output_counts, output_start_);
  const std::int64_t own_block =
      contract.blocks() == 1
          ? 0
          : chunk_start_[static_cast<std::size_t>(work_.plan->rank * contract.chunks_per_block)];
  input_shift_ = output_shift_ = 0;
  switch (contract.op) {
    case sched::Collective::kAllGather:
    case sched::Collective::kGather:
      input_shift_ = own_block;
      break;
    case sched::Collective::kReduceScatter:
    case sched::Collective::kScatter:
      output_shift_ = own_block;
      break;
    case sched::Collective::kAllReduce:
    case sched::Collective::kBroadcast:
    case sched::Collective::kReduce:
    case sched::Collective::kAllToAll:
    case sched::Collective::kBarrier:
      break;
  }
}

// Block after block, in each block partition(count, C, i).
void Execution::place_blocks(const std::int64_t* counts, std::vector<std::int64_t>& start) const {
  const sched::Contract& contract = work_.plan->contract;
  const int per_block = contract.chunks_per_block;
  start.resize(static_cast<std::size_t>(contract.chunks()) + 1);
  std::int64_t* at = start.data();
  std::int64_t end = 0;
  *at++ = 0;
  for (int block = 0; block < contract.blocks(); ++block) {
    const std::int64_t count = counts == nullptr ? work_.count : counts[block];
    const std::int64_t quotient = count / per_block;
    const std::int64_t remainder = count % per_block;
    for (int i = 0; i < per_block; ++i) {
      end += (quotient + (i < remainder ? 1 : 0)) * element_bytes_;
      *at++ = end;
    }
  }
}

const std::vector<std::int64_t>& Execution::starts_of(sched::Space space) const {
  if (space == sched::Space::kScratch) return scratch_start_;
  return space == sched::Space::kOutput && !output_start_.empty() ? output_start_ : chunk_start_;
}

// Where each rank has counts of its own, nothing else shows that a pair's two agree.
std::uint64_t Execution::flag_of(std::int64_t size) const {
  if (output_start_.empty()) return work_.flag;
  const auto mixed = static_cast<std::uint64_t>(size) * 0x9e3779b97f4a7c15ULL;
  return work_.flag ^ (mixed >> 32);
}

void Execution::place_scratch() {
  const std::vector<std::uint32_t>& chunks = work_.plan->scratch_chunk;
  scratch_start_.resize(chunks.size() + 1);
  scratch_start_[0] = 0;
  for (std::size_t slot = 0; slot < chunks.size(); ++slot) {
    scratch_start_[slot + 1] =
        scratch_start_[slot] + chunk_start_[chunks[slot] + 1] - chunk_start_[chunks[slot]];
  }
  if (scratch_start_.back() <= scratch_bytes_) return;
  scratch_bytes_ = scratch_start_.back();
  scratch_.reset(new std::byte[static_cast<std::size_t>(scratch_bytes_)]);
}

std::byte* Execution::address(sched::Slot slot) const {
  switch (slot.space()) {
    case sched::Space::kInput:  // never written: Plan's steps only read it
      return const_cast<std::byte*>(static_cast<const std::byte*>(work_.input)) +
             (chunk_start_[slot.index()] - input_shift_);
    case sched::Space::kOutput:
      return static_cast<std::byte*>(work_.output) +
             (starts_of(slot.space())[slot.index()] - output_shift_);
    case sched::Space::kScratch:
      return scratch_.get() + scratch_start_[slot.index()];
  }
  return nullptr;
}

// Input and Output of a chunk count as one place.
std::int64_t Execution::start_of(sched::Slot slot) const {
  return starts_of(slot.space())[slot.index()];
}

std::int64_t Execution::size_of_slots(sched::Slot slot, std::uint16_t chunks) const {
  const std::vector<std::int64_t>& start = starts_of(slot.space());
  return start[slot.index() + chunks] - start[slot.index()];
}

Progress Execution::progress() {
  bool moved = false;
  const std::size_t count = states_.size();
  while (first_ < count && states_[first_].complete) ++first_;
  const std::size_t end = std::min(count, first_ + kWindow);
  for (std::size_t i = first_; i < end; ++i) {
    if (states_[i].complete) continue;
    moved |= advance(i);
  }
  if (fault_.kind != Fault::Kind::kNone) return Progress::kFailed;
  if (remaining_ == 0) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kIdle;
}

std::int64_t Execution::limit(const PlanStep& step, std::int64_t size) const {
  std::int64_t least = size;
  const std::uint32_t end = step.first_dependence + step.dependences;
  for (std::uint32_t i = step.first_dependence; i < end; ++i) {
    const State& earlier = states_[work_.plan->dependences[i].step];
    if (earlier.complete) continue;
    const std::int64_t passed = earlier.done + shifts_[i];
    if (passed <= 0) return -1;
    least = std::min(least, passed);
  }
  return least;
}

// Lanes are FIFO: the messages of a step come after those of the lane's earlier steps.
bool Execution::my_turn(std::int32_t before) const {
  if (before == PlanStep::kNone) return true;
  const State& state = states_[static_cast<std::size_t>(before)];
  return state.opened && state.issued == state.size;
}

bool Execution::advance(std::size_t index) {
  const PlanStep& step = work_.plan->steps[index];
  State& state = states_[index];
  const std::int64_t until = limit(step, state.size);
  if (until < 0) return false;
  switch (step.verb) {
    case PlanVerb::kSend:
      return my_turn(step.before) && advance_send(step, state, until);
    case PlanVerb::kReceive:
    case PlanVerb::kReduce:
      return my_turn(step.before) && advance_receive(step, state, until);
    case PlanVerb::kReduceMany:
      return advance_many(step, state, until);
    case PlanVerb::kCopy:
    case PlanVerb::kReduceLocal:
      return advance_local(step, state, until);
  }
  return false;
}

bool Execution::advance_send(const PlanStep& step, State& state, std::int64_t until) {
  bool moved = false;
  const Source source = source_of(step);
  const std::int64_t least = worthwhile_bytes(step);
  if (state.oldest != 0) collect_released(step, state, &moved);
  while (state.issued < until || !state.opened) {
    if (until < state.size && until - state.issued < least) break;
    const Sent sent = transport_.send(step.peer, lane_of(step.lane), flag_of(state.size),
                                      state.source + state.issued, until - state.issued, source);
    if (sent.size_bytes == Sent::kNoCredit) break;
    moved = true;
    state.opened = true;
    state.issued += sent.size_bytes;
    sent_bytes_ += sent.size_bytes;
    state.newest = sent.sequence;
    if (sent.exposed && state.oldest == 0) state.oldest = sent.sequence;
    if (state.oldest == 0) {
      state.done = state.issued;
    } else {
      state.piece_end[sent.sequence % kMaxCredits] = state.issued;
    }
  }
  if (state.opened && state.issued == state.size && state.oldest == 0) finish(state);
  return moved;
}

// What is held back never holds back the bytes that it waits for. Those wait for other steps only:
// the dependences of this one and all that those wait for. Of a plan that completes without
// buffering no such step waits for this one, be it as a whole, since there a send happens together
// with its receive once all steps that either depends on have (rendezvous.h). Where a schedule
// needs buffers, as when ranks exchange in place, a lane holds fewer bytes than a step may have, so
// nothing is held back.
std::int64_t Execution::worthwhile_bytes(const PlanStep& step) const {
  return work_.plan->unbuffered ? transport_.worthwhile_bytes(step.peer, lane_of(step.lane)) : 0;
}

// Once a message exposes the source, this step's later ones count as done in order with it, copied
// or not.
void Execution::collect_released(const PlanStep& step, State& state, bool* moved) {
  while (transport_.released(step.peer, lane_of(step.lane), state.oldest)) {
    *moved = true;
    state.done = state.piece_end[state.oldest % kMaxCredits];
    if (state.oldest == state.newest) {
      state.oldest = 0;
      return;
    }
    ++state.oldest;
  }
}

Source Execution::source_of(const PlanStep& step) const {
  if (!step.exposable) return Source::kCopied;
  if (!step.moved) return Source::kStable;
  // A rank that only sends to one has less to do than that rank: a root that reads all it gathers
  // by itself leaves the other cores idle.
  const bool feeds = !work_.plan->receives && work_.plan->steps.size() == 1;
  if (work_.shares_cores) return feeds ? Source::kStable : Source::kMoved;
  return !work_.plan->receives || streams_ ? Source::kPushed : Source::kMoved;
}

bool Execution::advance_receive(const PlanStep& step, State& state, std::int64_t until) {
  bool moved = false;
  Message message;
  if (lands_ && state.used == 0 && state.done < state.size) {
    transport_.expect(step.peer, lane_of(step.lane), wanted(step, state, until),
                      wanted_after(step));
  }
  while ((state.done < until || !state.opened) &&
         transport_.peek(step.peer, lane_of(step.lane), &message)) {
    if (!expected(step.peer, message, flag_of(state.size))) return false;
    const std::int64_t size = std::min(
        {message.size_bytes - state.used, until - state.done, portion(step.verb, message)});
    if (size == 0 && message.size_bytes > 0) break;
    if (size > 0 && !consume(step, state, message, size)) return false;
    moved = true;
    state.used += size;
    state.done += size;
    state.issued = state.done;
    if (state.used < message.size_bytes) break;
    state.used = 0;
    state.opened = true;
    transport_.release(step.peer, lane_of(step.lane));
  }
  if (state.opened && state.done == state.size && state.used == 0) finish(state);
  return moved;
}

Wanted Execution::wanted(const PlanStep& step, const State& state, std::int64_t until) {
  const std::int64_t rest = state.size - state.done;
  if (step.verb != PlanVerb::kReceive) return {nullptr, rest, rest};
  return {state.target + state.done, until - state.done, rest};
}

Wanted Execution::wanted_after(const PlanStep& step) const {
  if (step.after == PlanStep::kNone) return {};
  const auto index = static_cast<std::size_t>(step.after);
  const PlanStep& next = work_.plan->steps[index];
  const std::int64_t until = limit(next, states_[index].size);
  return wanted(next, states_[index], std::max<std::int64_t>(until, 0));
}

bool Execution::expected(int peer, const Message& message, std::uint64_t flag) {
  if (message.flag != flag) {
    fail(Fault::Kind::kForeignMessage, peer, message.flag);
  } else if (message.data == nullptr && message.remote == 0) {
    fail(Fault::Kind::kUnmapped, peer, message.flag);
  }
  return fault_.kind == Fault::Kind::kNone;
}

std::int64_t Execution::portion(PlanVerb verb, const Message& message) {
  if (message.data != nullptr) return message.size_bytes;
  return verb == PlanVerb::kReceive ? kReadBytes : kTileBytes;
}

bool Execution::consume(const PlanStep& step, State& state, const Message& message,
                        std::int64_t size) {
  std::byte* target = state.target + state.done;
  const std::byte* data = message.data;
  if (data != nullptr) {
    data += state.used;
  } else if (step.verb == PlanVerb::kReceive) {
    return pull(step.peer, message, state.used, target, size);
  } else {
    tiles_.resize(std::max(tiles_.size(), static_cast<std::size_t>(kTileBytes)));
    if (!pull(step.peer, message, state.used, tiles_.data(), size)) return false;
    data = tiles_.data();
  }
  if (step.verb == PlanVerb::kReceive) {
    if (data != target) copy(step, target, data, size);
  } else {
    const void* const sources[] = {state.source + state.done, data};
    kernels::reduce_many(work_.reduce, work_.dtype, target, sources, size / element_bytes_,
                         stores(step));
  }
  return true;
}

bool Execution::pull(int peer, const Message& message, std::int64_t offset, std::byte* target,
                     std::int64_t size) {
  if (transport_.read(peer, message, offset, target, size)) return true;
  fail(Fault::Kind::kNotRead, peer, message.flag);
  return false;
}

void Execution::copy(const PlanStep& step, std::byte* target, const std::byte* source,
                     std::int64_t size) const {
  kernels::copy(target, source, size, stores(step));
}

kernels::Stores Execution::stores(const PlanStep& step) const {
  return streams_ && step.last ? kernels::Stores::kPastCache : kernels::Stores::kCached;
}

bool Execution::advance_many(const PlanStep& step, State& state, std::int64_t until) {
  bool moved = false;
  while (!state.complete && (state.done < until || !state.opened)) {
    const std::int64_t size = gather_sources(step, state, until);
    if (size < 0) break;
    if (size > 0) {
      kernels::reduce_many(work_.reduce, work_.dtype, state.target + state.done, sources_,
                           size / element_bytes_, stores(step));
    }
    use_sources(step, size);
    state.opened = true;
    state.done += size;
    state.issued = state.done;
    moved = true;
    if (state.done == state.size) finish(state);
  }
  return moved;
}

std::int64_t Execution::gather_sources(const PlanStep& step, const State& state,
                                       std::int64_t until) {
  std::int64_t size = until - state.done;
  heads_.assign(step.operands, Message{});
  for (std::uint32_t k = 0; k < step.operands; ++k) {
    const PlanOperand& operand = work_.plan->operands[step.first_operand + k];
    if (!operand.is_message) continue;
    Message& message = heads_[k];
    Operand& at = operands_[step.first_operand + k];
    if (!my_turn(operand.before)) return -1;
    if (lands_ && at.used == 0) {
      const std::int64_t rest = state.size - state.done;
      transport_.expect(operand.peer, lane_of(operand.lane), {nullptr, rest, rest}, {});
    }
    if (!transport_.peek(operand.peer, lane_of(operand.lane), &message)) return -1;
    if (!expected(operand.peer, message, flag_of(state.size))) return -1;
    at.available = message.size_bytes - at.used;
    size = std::min({size, at.available, portion(step.verb, message)});
  }
  sources_.clear();
  for (std::uint32_t k = 0; k < step.operands; ++k) {
    const PlanOperand& operand = work_.plan->operands[step.first_operand + k];
    const Operand& at = operands_[step.first_operand + k];
    if (!operand.is_message) {
      sources_.push_back(at.base + state.done);
    } else if (heads_[k].data != nullptr) {
      sources_.push_back(heads_[k].data + at.used);
    } else {
      // Room for all operands at once: a place must not move while another is filled.
      const std::size_t needed = step.operands * static_cast<std::size_t>(kTileBytes);
      if (tiles_.size() < needed) tiles_.resize(needed);
      std::byte* const tile = tiles_.data() + k * static_cast<std::size_t>(kTileBytes);
      if (size > 0 && !pull(operand.peer, heads_[k], at.used, tile, size)) return -1;
      sources_.push_back(tile);
    }
  }
  return size;
}

void Execution::use_sources(const PlanStep& step, std::int64_t size) {
  for (std::uint32_t i = step.first_operand; i < step.first_operand + step.operands; ++i) {
    const PlanOperand& operand = work_.plan->operands[i];
    if (!operand.is_message) continue;
    Operand& at = operands_[i];
    at.used += size;
    at.available -= size;
    if (at.available > 0) continue;
    at.used = 0;
    transport_.release(operand.peer, lane_of(operand.lane));
  }
}

bool Execution::advance_local(const PlanStep& step, State& state, std::int64_t until) {
  const std::int64_t size = until - state.done;
  if (size == 0 && state.done < state.size) return false;
  std::byte* target = state.target + state.done;
  const std::byte* source = state.source + state.done;
  if (size > 0 && step.verb == PlanVerb::kReduceLocal) {
    kernels::reduce(work_.reduce, work_.dtype, target, target, source, size / element_bytes_);
  } else if (size > 0 && target != source) {
    copy(step, target, source, size);
  }
  state.done += size;
  if (state.done == state.size) finish(state);
  return true;
}

void Execution::finish(State& state) {
  state.complete = true;
  state.done = state.size;
  --remaining_;
}

void Execution::fail(Fault::Kind kind, int peer, std::uint64_t found) {
  if (fault_.kind == Fault::Kind::kNone) fault_ = {kind, peer, found};
}

int Execution::waits_for() const {
  for (std::size_t i = first_; i < states_.size(); ++i) {
    const PlanStep& step = work_.plan->steps[i];
    if (states_[i].complete || limit(step, states_[i].size) < 0) continue;
    if (step.verb == PlanVerb::kCopy || step.verb == PlanVerb::kReduceLocal) continue;
    if (step.verb != PlanVerb::kReduceMany) {
      if (my_turn(step.before)) return step.peer;
      continue;
    }
    for (std::uint32_t k = step.first_operand; k < step.first_operand + step.operands; ++k) {
      const PlanOperand& operand = work_.plan->operands[k];
      Message message;
      if (operand.is_message && !transport_.peek(operand.peer, lane_of(operand.lane), &message))
        return operand.peer;
    }
  }
  return -1;
}

}  // namespace sinew::comm
