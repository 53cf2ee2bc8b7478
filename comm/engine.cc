#include "comm/engine.h"

#include <fmt/core.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>

#include "comm/selection_file.h"
#include "comm/transport/mapped.h"
#include "comm/transport/routed.h"
#include "kernels/reduce.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/collective/registry.h"
#include "sched/places.h"
#include "sched/verify.h"

namespace sinew::comm {

namespace {

// Slow checks read a file per peer: once in this time is often enough to notice a killed peer at
// once in human terms, and rare enough to cost nothing.
constexpr std::int64_t kTroubleNs = 2'000'000;

// Looks for what a lost rank sent last: with a yield each, tenths of a millisecond.
constexpr int kLastLooks = 200;

// With more, algorithms of few rounds take over (select.cc).
constexpr int kMostStagedRanks = 64;
// Between two looks for what peers on other hosts have to say, of a rank that does not wait: 100 to
// 500 us of a processor's time stamps. A clock would wait for all that is under way in memory, as
// long as a sixth of a message through shared memory takes.
constexpr std::uint64_t kHearTicks = 500'000;
// Between two rounds of the slow checks, of a rank that asks whether a call is done and does not
// wait.
constexpr std::uint64_t kTestTicks = 10 * kHearTicks;

// A communicator and those split from it belong to the thread that made them.
thread_local std::vector<Engine*> engines_of_thread;

// Of the whole vector; where parts have counts of their own, count is already all of them.
std::int64_t payload_bytes(const Ask& ask, int world) {
  return ask.counts != nullptr ? ask.count * static_cast<std::int64_t>(size_of(ask.dtype))
                               : full_bytes(ask.op, ask.count, ask.dtype, world);
}

}  // namespace

Engine::Engine(Parts parts, Options options)
    : options_(std::move(options)),
      rank_(parts.bootstrap->rank()),
      world_(parts.bootstrap->world()),
      memory_(parts.memory),
      regions_(parts.regions),
      block_(std::make_shared<SharedBlock>()),
      origins_(parts.origins),
      choice_(parts.choice) {
  if (origins_.empty()) {
    for (int peer = 0; peer < world_; ++peer) origins_.push_back(peer);
  }
  share_block(parts);
  block_->upper = parts.upper;
  std::byte* memory = block_->mapping.data();
  block_->roster = std::make_unique<Roster>(memory, rank_, world_,
                                            parts.upper ? parts.upper->roster.get() : nullptr);
  block_->roster->join(origins_[static_cast<std::size_t>(rank_)]);
  memory += Roster::size_bytes(world_);
  boxes_ = std::make_unique<SmallBoxes>(memory, rank_, world_);
  memory += SmallBoxes::size_bytes(world_);
  if (wants_stage()) {
    stage_ = std::make_unique<Stage>(memory, world_);
    memory += Stage::size_bytes(world_);
  }
  make_transports(parts, memory);
  messages_ = std::make_unique<Messages>(*transport_, rank_, world_);
  for (int channel = 0; channel < kChannels; ++channel)
    operations_.push_back(std::make_unique<Operation>(*transport_));
  const Neighbours here =
      neighbours(parts.bootstrap->exchange(usable_cores()), static_cast<std::size_t>(rank_));
  own_cores_ = share_of_cores(here);
  if (!memory_->one_address_space()) placement_ = Placement::of_thread(here);
  find_peers_on_my_core(here);
  const bool many_hosts = block_->network != nullptr;
  machine_ = {.world = world_,
              .cores = count_cores(here.cores),
              .hosts = many_hosts ? count_hosts(choice_.hosts) : 1,
              .ranks_per_host = many_hosts ? ranks_per_host(choice_.hosts) : 0,
              .transport = transport_->traits().name,
              .measured = &selection_file()};
  plans_ = std::make_unique<PlanCache>(rank_, world_, options_.fuse, machine_.ranks_per_host);
  policy_ = wait_policy(static_cast<int>(here.cores.size()), machine_.cores, options_.spin_us,
                        options_.timeout_s);
  selector_ = std::make_unique<Selector>(machine_);
  sources_.resize(static_cast<std::size_t>(world_));
  auto_by_default_ = options_.algorithm == "auto";
  reads_peers_ = memory_->one_address_space() || (pull_ != nullptr && pull_->used());
  find_direct();
  if (block_->network != nullptr) {
    // Boxes and symmetric calls are for memory that all ranks map.
    options_.small_calls = false;
    std::fill(std::begin(symmetric_), std::end(symmetric_), kNoAlgorithm);
    policy_.yield_ns = Network::kYieldNs;
    policy_.spins = std::min(policy_.spins, Network::kSpins);
  }
  engines_of_thread.push_back(this);
}

void Engine::find_peers_on_my_core(const Neighbours& here) {
  on_my_core_.assign(static_cast<std::size_t>(world_), false);
  if (placement_ == nullptr || here.cores.size() != on_my_core_.size()) return;
  const std::vector<int> cores = fixed_cores(here, placement_->keeps());
  for (std::size_t peer = 0; peer < cores.size(); ++peer)
    on_my_core_[peer] = cores[here.own] >= 0 && cores[peer] == cores[here.own];
}

bool Engine::alone_on_host() const {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer != rank_ && maps(peer)) return false;
  }
  return world_ > 1;
}

bool Engine::wants_stage() const {
  if (world_ == 1 || world_ > kMostStagedRanks || memory_->one_address_space()) return false;
  const bool plain = options_.small_calls && options_.fuse && options_.copies == Copies::kAuto &&
                     !options_.wrap_transport;
  return plain && std::ranges::all_of(choice_.hosts, [&](int host) {
           return host == choice_.hosts[static_cast<std::size_t>(rank_)];
         });
}

void Engine::share_block(const Parts& parts) {
  std::size_t size = Roster::size_bytes(world_) + SmallBoxes::size_bytes(world_);
  if (wants_stage()) size += Stage::size_bytes(world_);
  if (!alone_on_host()) size += MappedLayout(world_).size_bytes();
  // The lowest rank of a host offers its block.
  int first = 0;
  while (!maps(first)) ++first;
  std::vector<Mapping> views =
      memory_->share(*parts.bootstrap, rank_ == first ? size : 0, choice_.hosts);
  block_->mapping = std::move(views[static_cast<std::size_t>(first)]);
}

void Engine::make_transports(const Parts& parts, std::byte* lanes) {
  if (!memory_->one_address_space() && options_.copies != Copies::kSlots) {
    std::vector<bool> same_host;
    for (int peer = 0; peer < world_; ++peer) same_host.push_back(maps(peer));
    pull_ = std::make_unique<Pull>(*parts.bootstrap, same_host);
    copies_denied_ = pull_->denial();
  }
  if (!alone_on_host()) {
    mapped_ = std::make_unique<MappedTransport>(
        MappedPlace{.memory = lanes,
                    .rank = rank_,
                    .world = world_,
                    .one_address_space = memory_->one_address_space(),
                    .origins = &origins_,
                    .regions = regions_.get(),
                    .roster = block_->roster.get(),
                    .name = memory_->name(),
                    .pull = pull_.get(),
                    .copies = options_.copies});
  }
  if (mapped_ != nullptr && options_.wrap_transport)
    mapped_ = options_.wrap_transport(std::move(mapped_), rank_);
  transport_ = mapped_.get();
  bool one_host = true;
  for (const int host : choice_.hosts) one_host &= host == choice_.hosts[0];
  if (one_host) return;
  std::vector<bool> reaches;
  for (int peer = 0; peer < world_; ++peer) {
    reaches.push_back(!maps(peer));
    if (!maps(peer)) block_->roster->place(peer, origins_[static_cast<std::size_t>(peer)]);
  }
  block_->network = std::make_unique<Network>(NetPlace{.bootstrap = parts.bootstrap,
                                                       .kind = choice_.wire,
                                                       .argument = choice_.argument,
                                                       .reaches = reaches},
                                              *block_->roster, family());
  NetTransport& net = block_->network->transport();
  transport_ = &net;
  if (mapped_ == nullptr) return;
  std::vector<Transport*> routes;
  for (int peer = 0; peer < world_; ++peer) {
    routes.push_back(peer == rank_ ? nullptr : maps(peer) ? mapped_.get() : &net);
  }
  routed_ = std::make_unique<RoutedTransport>(
      choice_.wire->name == "verbs" ? "shm+verbs" : "shm+ucx", routes);
  transport_ = routed_.get();
}

void Engine::find_direct() {
  std::fill(std::begin(direct_), std::end(direct_), kNoAlgorithm);
  std::fill(std::begin(symmetric_), std::end(symmetric_), kNoAlgorithm);
  const auto rows = sched::algorithms();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string_view direct =
        rows[i].op == sched::Collective::kAllReduce ? "one_shot" : "direct";
    const auto op = static_cast<std::size_t>(rows[i].op);
    if (rows[i].name == direct) direct_[op] = static_cast<std::uint16_t>(i);
    const bool moves_symmetric = rows[i].op == sched::Collective::kReduceScatter ||
                                 rows[i].op == sched::Collective::kAllGather;
    if (rows[i].name == (rows[i].op == sched::Collective::kAllReduce ? "two_shot" : "direct") &&
        (moves_symmetric || rows[i].op == sched::Collective::kAllReduce)) {
      symmetric_[op] = static_cast<std::uint16_t>(i);
    }
  }
  const auto is_asked_for = [&](const sched::Algorithm& row) {
    return row.name == options_.algorithm;
  };
  if (!auto_by_default_ && std::ranges::none_of(sched::every_algorithm(), is_asked_for)) {
    throw UsageError(
        fmt::format("algorithm '{}' is unknown to every operation; legal values: auto, or a name "
                    "from the table of algorithms",
                    options_.algorithm));
  }
}

Engine::~Engine() { close(); }

void Engine::close() {
  if (closed_) return;
  lost_calls_ = !failed_ && (running_ > 0 || messages_->under_way());
  if (lost_calls_) abandon("destroyed its communicator in the middle of a call");
  closed_ = true;
  std::erase(engines_of_thread, this);
  if (block_->network != nullptr && !failed_) farewell();
  block_->roster->leave(failed_ ? Roster::Leaving::kThrew : Roster::Leaving::kDone);
}

void Engine::abandon(const char* how) {
  if (failed_ || closed_) return;
  failed_ = true;
  const std::string who = block_->roster->name_of(rank_);
  block_->roster->poison(Cause::kPeerGone, rank_,
                         fmt::format("{}: {} after {} calls", who, how, calls_));
  tell_poison();
  if (reads_peers_) block_->roster->await_readers(options_.timeout_s);
  stop_landing();
}

// ---- collectives

std::span<Engine* const> Engine::of_thread() { return engines_of_thread; }

void Engine::check_call(const Ask& ask, std::string_view algorithm) {
  static_cast<void>(plan_of(resolve(ask, algorithm, Form::kStarted), ask));
}

void Engine::run(const Ask& ask, std::string_view algorithm) {
  raise_if_poisoned();
  const CallInfo call = resolve(ask, algorithm, Form::kBlocking);
  if (ask.factor == nullptr) [[likely]]
    return run_plain(call, ask);
  Ask product = ask;
  product.input = premultiply(ask, operations_[0]->products);
  product.factor = nullptr;
  run_plain(call, product);
}

void Engine::run_plain(const CallInfo& call, const Ask& ask) {
  Counter& counter = counters_.collective[static_cast<std::size_t>(ask.op)];
  if (!is_small(ask, call.algorithm) && !may_be_parcelled(ask, call.algorithm)) {
    const Timed timed(counter);
    if (may_be_symmetric(ask, call.algorithm)) {
      run_symmetric(call, ask);
    } else if (may_be_staged(ask, call.algorithm)) {
      run_staged(call, ask);
    } else {
      wait(begin(call, plan_of(call, ask), ask));
    }
  } else {
    const Timed timed(counter, Timed::weight_of_few_bytes(counter));
    run_boxed(call, ask);
  }
}

void Engine::run_boxed(const CallInfo& call, const Ask& ask) {
  if (ask.output_counts == nullptr) [[likely]]
    return run_small(call, ask);
  run_parcelled(call, ask);
}

Operation& Engine::start(const Ask& ask, std::string_view algorithm) {
  raise_if_poisoned();
  const CallInfo call = resolve(ask, algorithm, Form::kStarted);
  return begin(call, plan_of(call, ask), ask);
}

// Ranks that forward parts of an all_to_all do not know their sizes when these differ.
const Plan& Engine::plan_of(const CallInfo& call, const Ask& ask) {
  // Of all_to_all only: there what is sent is always input, which nobody overwrites, so that ranks
  // in place and ranks apart get on. Elsewhere nothing is gained.
  const bool apart = ask.op == sched::Collective::kAllToAll && ask.input != ask.output;
  const Plan& plan = plans_->get(call.algorithm, call.root, apart);
  if (ask.output_counts != nullptr && plan.forwards) {
    throw UsageError(
        fmt::format("all_to_all_v by {}: it forwards parts through ranks that do not know their "
                    "sizes; legal values: auto, direct, and others that move each part once",
                    sched::every_algorithm()[call.algorithm].name));
  }
  return plan;
}

void Engine::run_schedule(const sched::Schedule& schedule, const Ask& ask) {
  raise_if_poisoned();
  const OwnPlan& own = own_plan(schedule);
  check(ask);
  CallInfo call;
  call.kind = kind_of(ask.op);
  call.dtype = ask.dtype;
  call.reduce = ask.reduce;
  call.root = static_cast<std::uint16_t>(ask.root);
  call.tag = own.tag;
  call.count = ask.count;
  const Timed timed(counters_.collective[static_cast<std::size_t>(ask.op)]);
  wait(begin(call, own.plan, ask));
}

const Engine::OwnPlan& Engine::own_plan(const sched::Schedule& schedule) {
  for (const std::unique_ptr<OwnPlan>& known : own_plans_) {
    if (known->schedule == schedule) return *known;
  }
  const std::size_t hash = std::hash<std::string>{}(sched::print(schedule));
  own_plans_.push_back(std::make_unique<OwnPlan>(
      OwnPlan{schedule, prove_and_compile(schedule), static_cast<std::uint16_t>(hash)}));
  return *own_plans_.back();
}

Plan Engine::prove_and_compile(const sched::Schedule& schedule) const {
  const sched::Contract& contract = schedule.contract;
  if (contract.world != world_) {
    throw UsageError(
        fmt::format("schedule '{}' is for {} ranks; legal values: the communicator's {}",
                    schedule.name, contract.world, world_));
  }
  if (direct_[static_cast<std::size_t>(contract.op)] == kNoAlgorithm) {
    throw UsageError(fmt::format("schedule '{}' is a {}, which the communicator has no call for",
                                 schedule.name, sched::name_of(contract.op)));
  }
  const sched::Verdict verdict = sched::verify(schedule);
  if (!verdict.proved()) {
    throw UsageError(fmt::format("schedule '{}' is wrong: {}\n{}", schedule.name, verdict.failure,
                                 verdict.drawing));
  }
  return compile_whole(sched::with_direct_dependences(schedule), rank_, options_.fuse);
}

void Engine::wait(Operation& operation) {
  wait(Pending{.operation = &operation});
  block_->roster->end(operation.number);
}

bool Engine::test(Operation& operation) {
  const bool done = test(Pending{.operation = &operation});
  if (done) block_->roster->end(operation.number);
  return done;
}

CallInfo Engine::resolve(const Ask& ask, std::string_view algorithm, Form form) {
  check(ask);
  CallInfo call;
  call.kind = kind_of(ask.op);
  call.algorithm = algorithm_of(ask, algorithm);
  call.dtype = ask.dtype;
  call.reduce = ask.reduce;
  call.form = form;
  call.root = static_cast<std::uint16_t>(ask.root);
  call.count = ask.count;
  if (ask.output_counts != nullptr) {
    // Every rank has its own: each pair compares what it exchanges.
    call.tag = CallInfo::kOwnParts;
    call.count = 0;
  } else if (ask.counts != nullptr) {
    call.tag = tag_of_parts(ask.counts, world_);
  }
  return call;
}

std::uint16_t Engine::algorithm_of(const Ask& ask, std::string_view name) {
  if (name.empty())
    name = auto_by_default_ ? std::string_view("auto") : std::string_view(options_.algorithm);
  // Its sizes are each rank's own: nothing to choose by.
  if (name == "auto" && ask.output_counts != nullptr)
    return direct_[static_cast<std::size_t>(ask.op)];
  if (name == "auto") return selector_->index(ask.op, payload_bytes(ask, world_));
  Named& last = named_[static_cast<std::size_t>(ask.op)];
  if (last.root != ask.root || last.name != name) {
    last.index = algorithm_index(ask.op, name, world_, ask.root);
    last.name = name;
    last.root = ask.root;
  }
  return last.index;
}

Operation& Engine::begin(const CallInfo& call, const Plan& plan, const Ask& ask,
                         std::uint64_t flag) {
  int channel = 0;
  if (call.form == Form::kStarted) channel = 1 + static_cast<int>(started_++ % (kChannels - 1));
  Operation& operation = *operations_[static_cast<std::size_t>(channel)];
  if (operation.running) wait(Pending{.operation = &operation});
  operation.call = call;
  if (flag == 0) flag = announce(call);
  operation.number = calls_;
  const void* const input =
      ask.factor == nullptr ? ask.input : premultiply(ask, operation.products);
  operation.work = {.plan = &plan,
                    .input = input,
                    .output = ask.output,
                    .count = ask.count,
                    .dtype = ask.dtype,
                    .reduce = ask.reduce,
                    .counts = ask.counts,
                    .output_counts = ask.output_counts,
                    .flag = flag,
                    .channel = channel,
                    .shares_cores = policy_.spins == 0};
  operation.execution.start(operation.work);
  // They are the caller's, and were needed at the start only.
  operation.own_count = ask.counts != nullptr && ask.op == sched::Collective::kReduceScatter
                            ? ask.counts[rank_]
                            : ask.count;
  operation.full_bytes = payload_bytes(ask, world_);
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
  if (work.reduce == ReduceOp::kAvg && contract.reduces() && operation.own_count > 0 &&
      world_ > 1 &&
      contract.has_output(rank_, contract.op == sched::Collective::kReduceScatter
                                     ? rank_ * contract.chunks_per_block
                                     : 0)) {
    kernels::scale(work.dtype, work.output, operation.own_count, world_);
  }
  count_call(contract.op, work.count, operation.full_bytes, operation.execution.sent_bytes());
}

void Engine::count_call(sched::Collective op, std::int64_t count, std::int64_t payload_bytes,
                        std::int64_t sent_bytes) {
  Counter& counter = counters_.collective[static_cast<std::size_t>(op)];
  ++counter.calls;
  counter.elements += count;
  counter.payload_bytes += payload_bytes;
  counter.sent_bytes += sent_bytes;
}

// ---- progress and waiting

Progress Engine::progress() {
  if (block_->network != nullptr) return progress_over_network();
  if (!reads_peers_) return advance_all();
  // A peer that fails must not free what is read here: see Roster::await_readers.
  if (!block_->roster->enter_memory()) return Progress::kIdle;
  const Progress progress = advance_all();
  block_->roster->leave_memory();
  return progress;
}

Progress Engine::advance_all() {
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
    help_others();
    // What a peer did before it failed still counts: a call that is complete does not fail.
    if (block_->roster->poisoned() && !pending.done()) raise_if_poisoned();
    if (waiter.waited_ns() - looked_ns < kTroubleNs) continue;
    looked_ns = waiter.waited_ns();
    look_for_trouble(pending);
    if (waiter.expired()) raise_timeout(pending);
  }
}

bool Engine::test(const Pending& pending) {
  if (pending.done()) return true;
  raise_if_poisoned();
  if (progress() == Progress::kFailed) raise_fault();
  if (pending.done()) return true;
  const std::uint64_t now = __rdtsc();
  if (now - tested_ticks_ < kTestTicks) return false;
  tested_ticks_ = now;
  look_for_trouble(pending);
  return pending.done();
}

// What is started on one communicator and not done moves while this rank waits in another: the peer
// that must answer here may itself wait for the rest of a message of there.
void Engine::help_others() {
  for (Engine* const other : engines_of_thread) {
    if (other == this || other->failed_) continue;
    if (other->running_ == 0 && other->messages_->idle()) continue;
    // A fault stays where it is found, and is told by whoever waits there.
    static_cast<void>(other->progress());
  }
}

// ---- what can be wrong

void Engine::raise_if_poisoned() {
  // Each look at a network costs a system call, and whoever waits looks anyway.
  if (block_->network != nullptr) {
    const std::uint64_t now = __rdtsc();
    if (now - heard_ticks_ > kHearTicks) {
      heard_ticks_ = now;
      family()->hear_all();
    }
  }
  if (!block_->roster->poisoned()) [[likely]]
    return;
  failed_ = true;
  if (reads_peers_) block_->roster->await_readers(options_.timeout_s);
  stop_landing();
  const Error error = block_->roster->poison_error();
  if (error.cause() != Cause::kMismatch) mpi_skip_finalize();
  throw error;
}

void Engine::raise(Cause cause, int peer, const std::string& what) {
  const std::string text = fmt::format("{}: {}", block_->roster->name_of(rank_), what);
  block_->roster->poison(cause, peer, text);
  tell_poison();
  raise_if_poisoned();
  throw Error(cause, rank_, peer, text);
}

bool Engine::Pending::done() const {
  if (small != nullptr)
    return small->opened ? small->boxes->holds(small->peer) : small->boxes->free_to_write();
  return operation != nullptr ? !operation->running : transfer->complete;
}

const CallInfo& Engine::Pending::call() const {
  if (small != nullptr) return small->call;
  return operation != nullptr ? operation->call : transfer->call;
}

std::uint64_t Engine::Pending::number() const {
  if (small != nullptr) return small->number;
  return operation != nullptr ? operation->number : 0;
}

int Engine::Pending::waits_for() const {
  if (small != nullptr) return small->opened ? small->peer : small->boxes->waits_for();
  return operation != nullptr ? operation->execution.waits_for() : transfer->peer;
}

std::string Engine::words(const Pending& pending) const {
  if (pending.number() != 0)
    return fmt::format("{}, call {}", describe(pending.call()), pending.number());
  return fmt::format("{} ({} {})", describe(pending.transfer->call),
                     pending.transfer->direction == Transfer::Direction::kSend ? "to" : "from",
                     block_->roster->name_of(pending.transfer->peer));
}

void Engine::look_for_trouble(const Pending& pending) {
  const int waits_for = pending.waits_for();
  block_->roster->waiting(waits_for, pending.call());
  exchange_notices();
  if (pending.number() != 0) look_for_mismatch(pending);
  std::string how;
  const int lost = block_->roster->lost_rank(waits_for, &how);
  if (lost < 0) return;
  // What a rank sent before it left still counts, also when a transport hands it over late.
  for (int look = 0; look < kLastLooks; ++look) {
    const Progress state = progress();
    if (state == Progress::kFailed) raise_fault();
    if (state == Progress::kMoved || pending.done()) return;
    sched_yield();
  }
  raise(Cause::kPeerGone, lost,
        fmt::format("{} {}; waiting in {}; {}", block_->roster->name_of(lost), how, words(pending),
                    block_->roster->stand()));
}

// A peer whose call of the same number is another one will never send what this rank waits for, or
// has sent it to another lane.
void Engine::look_for_mismatch(const Pending& pending) {
  for (int peer = 0; peer < world_; ++peer) {
    if (peer == rank_ || block_->roster->begun(peer) < pending.number()) continue;
    const std::optional<CallInfo> theirs = block_->roster->call_of(peer, pending.number());
    if (theirs && *theirs != pending.call()) raise_mismatch(pending, peer, describe(*theirs));
  }
  if (pending.small == nullptr || !pending.small->opened) return;
  if (pending.small->agreed) return;
  // The same number in another box flag: this call agrees, an earlier one did not.
  const std::uint64_t shown = boxes_->shown(pending.small->peer);
  if (number_in(shown) == static_cast<std::uint32_t>(pending.number()) && !pending.done()) {
    raise_mismatch(pending, pending.small->peer, "the same, but something else before");
  }
}

// Call numbers in messages are the low half of the real ones.
std::uint64_t Engine::number_like(const Operation& operation, std::uint64_t flag) {
  return (operation.number & ~0xffffffffULL) | number_in(flag);
}

void Engine::raise_fault() {
  if (block_->network != nullptr) compare_rows();
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
    const std::uint64_t number = number_like(*operation, fault.found_flag);
    if (fault.kind != Fault::Kind::kForeignMessage) break;
    theirs = block_->roster->call_of(fault.peer, number);
    if (theirs && number != operation->number) {
      raise_mismatch(pending, fault.peer,
                     fmt::format("{} as its call {}", describe(*theirs), number));
    }
  }
  if (fault.kind != Fault::Kind::kForeignMessage) raise_unreadable(fault);
  const bool same = theirs && pending.operation != nullptr && *theirs == pending.call();
  raise_mismatch(pending, fault.peer,
                 same     ? kOtherCount
                 : theirs ? describe(*theirs)
                          : "something else, now or before");
}

void Engine::raise_unreadable(const Fault& fault) {
  const std::string who = block_->roster->name_of(fault.peer);
  std::string how;
  if (block_->roster->lost_rank(fault.peer, &how) == fault.peer) {
    raise(Cause::kPeerGone, fault.peer,
          fmt::format("{} {}; {}", who, how, block_->roster->stand()));
  }
  raise(Cause::kTransport, fault.peer,
        fault.kind == Fault::Kind::kUnmapped
            ? fmt::format("the symmetric memory that {} uses is not mapped here: it was freed on "
                          "this rank first",
                          who)
            : fmt::format("the memory that {} passed to its call cannot be read: it was freed "
                          "there, or the kernel forbids it now",
                          who));
}

// The message that did not fit may come from a later call than the one in which the ranks parted.
void Engine::raise_mismatch(const Pending& pending, int peer, const std::string& theirs) {
  const std::optional<std::string> first =
      pending.number() != 0 ? block_->roster->disagreement() : std::nullopt;
  if (first) raise(Cause::kMismatch, peer, "calls do not match: " + *first);
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
