#include "comm/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "comm/transport/mapped.h"
#include "kernels/reduce.h"
#include "sched/base/check.h"
#include "sched/collective/registry.h"

namespace sinew::comm {

namespace {

// Slow checks read a file per peer: once in this time is often enough to notice a killed peer at
// once in human terms, and rare enough to cost nothing.
constexpr std::int64_t kTroubleNs = 2'000'000;

Mapping share_block(const Engine::Parts& parts) {
  const std::size_t size = Roster::size_bytes(parts.bootstrap->world()) +
                           MappedLayout(parts.bootstrap->world()).size_bytes();
  std::vector<Mapping> views =
      parts.memory->share(*parts.bootstrap, parts.bootstrap->rank() == 0 ? size : 0);
  return std::move(views[0]);
}

}  // namespace

Engine::Engine(Parts parts, Options options)
    : options_(std::move(options)),
      rank_(parts.bootstrap->rank()),
      world_(parts.bootstrap->world()),
      memory_(parts.memory),
      regions_(parts.regions),
      block_(std::make_shared<SharedBlock>()),
      origins_(parts.origins) {
  if (origins_.empty()) {
    for (int peer = 0; peer < world_; ++peer) origins_.push_back(peer);
  }
  block_->mapping = share_block(parts);
  block_->upper = parts.upper;
  std::byte* memory = block_->mapping.data();
  block_->roster = std::make_unique<Roster>(memory, rank_, world_,
                                            parts.upper ? parts.upper->roster.get() : nullptr);
  block_->roster->join(origins_[static_cast<std::size_t>(rank_)]);
  transport_ = std::make_unique<MappedTransport>(
      MappedPlace{.memory = memory + Roster::size_bytes(world_),
                  .rank = rank_,
                  .world = world_,
                  .one_address_space = memory_->one_address_space(),
                  .origins = &origins_,
                  .regions = regions_.get(),
                  .roster = block_->roster.get(),
                  .name = memory_->name()});
  messages_ = std::make_unique<Messages>(*transport_, rank_, world_);
  plans_ = std::make_unique<PlanCache>(rank_, world_);
  for (int channel = 0; channel < kChannels; ++channel)
    operations_.push_back(std::make_unique<Operation>(*transport_));
  const std::vector<Cores> cores = parts.bootstrap->exchange(usable_cores());
  machine_ = {.world = world_, .cores = count_cores(cores.data(), world_)};
  policy_ = wait_policy(world_, machine_.cores, options_.spin_us, options_.timeout_s);
}

Engine::~Engine() {
  block_->roster->leave(failed_ ? Roster::Leaving::kThrew : Roster::Leaving::kDone);
}

void Engine::abandon() {
  if (failed_) return;
  failed_ = true;
  const std::string who = block_->roster->name_of(rank_);
  block_->roster->poison(Cause::kPeerGone, rank_,
                         fmt::format("{}: left by an exception after {} calls", who, calls_));
}

// ---- collectives

void Engine::run(const Ask& ask, std::string_view algorithm) {
  raise_if_poisoned();
  const CallInfo call = resolve(ask, algorithm, Form::kBlocking);
  Operation& operation = begin(call, plans_->get(call.algorithm, call.root), ask);
  wait(Pending{.operation = &operation});
  block_->roster->end(operation.number);
}

Operation& Engine::start(const Ask& ask, std::string_view algorithm) {
  raise_if_poisoned();
  const CallInfo call = resolve(ask, algorithm, Form::kStarted);
  return begin(call, plans_->get(call.algorithm, call.root), ask);
}

void Engine::wait(Operation& operation) {
  wait(Pending{.operation = &operation});
  block_->roster->end(operation.number);
}

bool Engine::test(Operation& operation) {
  raise_if_poisoned();
  if (operation.running && progress() == Progress::kFailed) raise_fault();
  if (!operation.running) block_->roster->end(operation.number);
  return !operation.running;
}

CallInfo Engine::resolve(const Ask& ask, std::string_view algorithm, Form form) const {
  check(ask);
  if (algorithm.empty()) algorithm = options_.algorithm;
  if (algorithm == "auto")
    algorithm =
        select(ask.op, full_bytes(ask.op, ask.count, ask.dtype, world_), machine_).algorithm;
  CallInfo call;
  call.kind = kind_of(ask.op);
  call.algorithm = algorithm_index(ask.op, algorithm, world_, ask.root);
  call.dtype = ask.dtype;
  call.reduce = ask.reduce;
  call.form = form;
  call.root = static_cast<std::uint16_t>(ask.root);
  call.count = ask.count;
  return call;
}

Operation& Engine::begin(const CallInfo& call, const Plan& plan, const Ask& ask) {
  int channel = 0;
  if (call.form == Form::kStarted) channel = 1 + static_cast<int>(started_++ % (kChannels - 1));
  Operation& operation = *operations_[static_cast<std::size_t>(channel)];
  if (operation.running) wait(Pending{.operation = &operation});
  operation.call = call;
  operation.number = ++calls_;
  operation.work = {.plan = &plan,
                    .input = ask.input,
                    .output = ask.output,
                    .count = ask.count,
                    .dtype = ask.dtype,
                    .reduce = ask.reduce,
                    .flag = flag_of(operation.number, signature_of(call.packed(), call.count)),
                    .channel = channel};
  block_->roster->begin(operation.number, call);
  operation.execution.start(operation.work);
  operation.running = true;
  ++running_;
  if (!operation.execution.running()) complete(operation);
  return operation;
}

void Engine::complete(Operation& operation) {
  operation.running = false;
  --running_;
  const Work& work = operation.work;
  const sched::Contract& contract = work.plan->contract;
  if (work.reduce == ReduceOp::kAvg && contract.reduces() && work.count > 0 && world_ > 1 &&
      contract.has_output(rank_, contract.op == sched::Collective::kReduceScatter
                                     ? rank_ * contract.chunks_per_block
                                     : 0)) {
    kernels::scale(work.dtype, work.output, work.count, world_);
  }
  count_call(operation);
}

void Engine::count_call(const Operation& operation) {
  const Work& work = operation.work;
  const sched::Collective op = work.plan->contract.op;
  Counter& counter = counters_.collective[static_cast<std::size_t>(op)];
  ++counter.calls;
  counter.elements += work.count;
  counter.payload_bytes += full_bytes(op, work.count, work.dtype, world_);
  counter.sent_bytes += operation.execution.sent_bytes();
}

// ---- progress and waiting

Progress Engine::progress() {
  bool moved = false;
  if (running_ > 0) {
    for (const std::unique_ptr<Operation>& operation : operations_) {
      if (!operation->running) continue;
      const Progress progress = operation->execution.progress();
      if (progress == Progress::kFailed) return progress;
      if (progress == Progress::kIdle) continue;
      moved = true;
      if (progress == Progress::kDone) complete(*operation);
    }
  }
  if (!messages_->idle()) {
    const Progress progress = messages_->progress();
    if (progress == Progress::kFailed) return progress;
    moved |= progress == Progress::kMoved;
  }
  return moved ? Progress::kMoved : Progress::kIdle;
}

void Engine::wait(const Pending& pending) {
  if (pending.done()) return;
  raise_if_poisoned();
  Waiter waiter(policy_, block_->roster->doorbell(rank_));
  std::int64_t looked_ns = 0;
  while (!pending.done()) {
    const Progress state = progress();
    if (state == Progress::kFailed) raise_fault();
    if (state == Progress::kMoved) {
      waiter.reset();
      looked_ns = 0;
      continue;
    }
    if (!waiter.pause()) continue;
    raise_if_poisoned();
    if (waiter.waited_ns() - looked_ns < kTroubleNs) continue;
    looked_ns = waiter.waited_ns();
    look_for_trouble(pending);
    if (waiter.expired()) raise_timeout(pending);
  }
}

// ---- what can be wrong

void Engine::raise_if_poisoned() {
  if (!block_->roster->poisoned()) [[likely]]
    return;
  failed_ = true;
  const Error error = block_->roster->poison_error();
  if (error.cause() != Cause::kMismatch) mpi_skip_finalize();
  throw error;
}

void Engine::raise(Cause cause, int peer, const std::string& what) {
  const std::string text = fmt::format("{}: {}", block_->roster->name_of(rank_), what);
  block_->roster->poison(cause, peer, text);
  raise_if_poisoned();
  throw Error(cause, rank_, peer, text);
}

std::string Engine::words(const Pending& pending) const {
  if (pending.operation != nullptr) {
    return fmt::format("{}, call {}", describe(pending.operation->call), pending.operation->number);
  }
  return fmt::format("{} ({} {})", describe(pending.transfer->call),
                     pending.transfer->direction == Transfer::Direction::kSend ? "to" : "from",
                     block_->roster->name_of(pending.transfer->peer));
}

void Engine::look_for_trouble(const Pending& pending) {
  const int waits_for = pending.waits_for();
  block_->roster->waiting(waits_for, pending.call());
  if (pending.operation != nullptr) look_for_mismatch(*pending.operation);
  std::string how;
  const int lost = block_->roster->lost_rank(waits_for, &how);
  if (lost < 0) return;
  // What a rank sent before it left still counts.
  const Progress state = progress();
  if (state == Progress::kFailed) raise_fault();
  if (state == Progress::kMoved || pending.done()) return;
  raise(Cause::kPeerGone, lost,
        fmt::format("{} {}; waiting in {}; {}", block_->roster->name_of(lost), how, words(pending),
                    block_->roster->stand()));
}

// A peer whose call of the same number is another one will never send what this rank waits for, or
// has sent it to another lane.
void Engine::look_for_mismatch(const Operation& operation) {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_ || block_->roster->begun(peer) < operation.number) continue;
    const std::optional<CallInfo> theirs = block_->roster->call_of(peer, operation.number);
    if (theirs && *theirs != operation.call)
      raise_mismatch({.operation = &operation}, peer, describe(*theirs));
  }
}

void Engine::raise_fault() {
  Pending pending;
  Fault fault = messages_->fault();
  std::optional<CallInfo> theirs;
  if (messages_->failed() != nullptr) {
    pending.transfer = messages_->failed();
    theirs = block_->roster->sent_call(fault.peer, fault.found_flag);
  }
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (!operation->running || operation->execution.fault().kind == Fault::Kind::kNone) continue;
    pending = {.operation = operation.get()};
    fault = operation->execution.fault();
    // Call numbers in messages are the low half of the real ones.
    const std::uint64_t number = (operation->number & ~0xffffffffULL) | number_in(fault.found_flag);
    theirs = block_->roster->call_of(fault.peer, number);
    if (theirs && number != operation->number) {
      raise_mismatch(pending, fault.peer,
                     fmt::format("{} as its call {}", describe(*theirs), number));
    }
  }
  raise_mismatch(pending, fault.peer, theirs ? describe(*theirs) : "something else");
}

void Engine::raise_mismatch(const Pending& pending, int peer, const std::string& theirs) {
  raise(Cause::kMismatch, peer,
        fmt::format("calls do not match: this rank called {}; {} called {}", words(pending),
                    block_->roster->name_of(peer), theirs));
}

void Engine::raise_timeout(const Pending& pending) {
  const int peer = pending.waits_for();
  raise(Cause::kTimeout, peer,
        fmt::format("{}: nothing from {} for {} s; {}", words(pending),
                    peer >= 0 ? block_->roster->name_of(peer) : std::string("any rank"),
                    options_.timeout_s, block_->roster->stand()));
}

}  // namespace sinew::comm
