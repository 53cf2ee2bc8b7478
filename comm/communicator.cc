#include "comm/communicator.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/device_door.h"
#include "comm/engine.h"
#include "comm/group.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::comm {

namespace {

Counter& counter_of(Engine& engine, const CallInfo& call, bool sends) {
  if (call.kind == CallKind::kMessage)
    return sends ? engine.counters().send : engine.counters().recv;
  return engine.counters().collective[static_cast<std::size_t>(call.kind)];
}

Counter& counter_of(Engine& engine, sched::Collective op) {
  return engine.counters().collective[static_cast<std::size_t>(op)];
}

}  // namespace

// ---- requests

Request::Request(Request&& other) noexcept
    : door_(std::exchange(other.door_, nullptr)),
      door_life_(std::move(other.door_life_)),
      engine_(std::move(other.engine_)),
      operation_(std::exchange(other.operation_, nullptr)),
      transfer_(std::exchange(other.transfer_, nullptr)),
      number_(other.number_) {}

Request& Request::operator=(Request&& other) noexcept {
  CHECK(!pending());
  door_ = std::exchange(other.door_, nullptr);
  door_life_ = std::move(other.door_life_);
  engine_ = std::move(other.engine_);
  operation_ = std::exchange(other.operation_, nullptr);
  transfer_ = std::exchange(other.transfer_, nullptr);
  number_ = other.number_;
  return *this;
}

Request::~Request() {
  if (engine_ == nullptr || (engine_->failed() && !engine_->lost_calls())) return;
  CHECK(std::uncaught_exceptions() > 0 && "a request was neither waited for nor failed");
  engine_->abandon("left by an exception");
}

void Request::refuse_orphan() {
  const bool lives = door_ != nullptr ? !door_life_.expired() : !engine_->closed();
  if (lives) return;
  door_ = nullptr;
  engine_ = nullptr;
  throw UsageError(
      "a request outlived its communicator; legal is to wait for it before that is destroyed");
}

void Request::wait() {
  CHECK(pending());
  refuse_orphan();
  if (door_ != nullptr) return std::exchange(door_, nullptr)->finish(number_);
  if (operation_ == nullptr) {
    const bool sends = transfer_->direction == Transfer::Direction::kSend;
    const Timed timed(counter_of(*engine_, transfer_->call, sends));
    engine_->wait(*transfer_);
  } else if (operation_->number == number_) {
    // Else it is done, and its place serves a later call that a peer may begin only once this rank
    // has gone on.
    const Timed timed(counter_of(*engine_, operation_->call, false));
    engine_->wait(*operation_);
  }
  engine_ = nullptr;
}

bool Request::test() {
  if (!pending()) return true;
  refuse_orphan();
  if (door_ != nullptr) {
    if (!door_->done(number_)) return false;
    door_ = nullptr;
    return true;
  }
  const bool later = operation_ != nullptr && operation_->number != number_;
  if (!later && !(operation_ != nullptr ? engine_->test(*operation_) : engine_->test(*transfer_)))
    return false;
  engine_ = nullptr;
  return true;
}

// ---- creation

Communicator::Communicator(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > 0) engine_->abandon("left by an exception");
  if (engine_->group() != nullptr) engine_->group()->lose(*this);
  device_.reset();
  engine_->close();
}

std::unique_ptr<Communicator> Communicator::from_bootstrap(Bootstrap& bootstrap,
                                                           const Options& options) {
  Engine::Parts parts;
  parts.choice = choose_transport(bootstrap, options.transport);
  parts.bootstrap = &bootstrap;
  parts.memory = parts.choice.local ? thread_memory() : host_memory();
  parts.regions = std::make_shared<Regions>();
  return std::unique_ptr<Communicator>(
      new Communicator(std::make_unique<Engine>(std::move(parts), options)));
}

std::unique_ptr<Communicator> Communicator::from_mpi(const Options& options) {
  const std::unique_ptr<Bootstrap> bootstrap = launched_bootstrap(options.timeout_s);
  if (options.transport == "local" && bootstrap->world() > 1) {
    throw UsageError("transport 'local' connects threads of one process; legal values with " +
                     std::to_string(bootstrap->world()) + " processes: auto, shm");
  }
  return from_bootstrap(*bootstrap, options);
}

void Communicator::run_threads(int world, const Options& options,
                               const std::function<void(Communicator&)>& body) {
  if (world < 1)
    throw UsageError("world " + std::to_string(world) +
                     " is out of range; legal values: 1 and more");
  Options threads_options = options;
  if (options.transport == "auto") threads_options.transport = "local";
  std::vector<std::unique_ptr<Bootstrap>> bootstraps = thread_bootstraps(world, options.timeout_s);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    try {
      const auto communicator =
          from_bootstrap(*bootstraps[static_cast<std::size_t>(rank)], threads_options);
      body(*communicator);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 1; rank < world; ++rank) threads.emplace_back(run, rank);
    run(0);
  }
  if (first != nullptr) std::rethrow_exception(first);
}

int Communicator::rank() const { return engine_->rank(); }
int Communicator::world() const { return engine_->world(); }
std::string_view Communicator::transport_name() const { return engine_->transport_name(); }
std::string Communicator::network() const { return engine_->describe_network(); }
std::int64_t Communicator::network_block_bytes() const { return engine_->network_block_bytes(); }
std::string_view Communicator::transport_to(int peer) const {
  return peer == rank() ? "self" : engine_->transport_to(peer);
}

const std::vector<int>& Communicator::own_cores() const { return engine_->own_cores(); }
std::string Communicator::placement() const { return engine_->placement(); }
const std::string& Communicator::copies_denied() const { return engine_->copies_denied(); }

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  outside_group("split");
  std::unique_ptr<Engine> engine = engine_->split(color, key);
  if (engine == nullptr) return nullptr;
  return std::unique_ptr<Communicator>(new Communicator(std::move(engine)));
}

// ---- collectives

void Communicator::attach(std::unique_ptr<DeviceDoor> door) { device_ = std::move(door); }

void Communicator::check_device() {
  if (device_ != nullptr) device_->check();
}

void Communicator::detach_device() {
  if (device_ != nullptr) device_->close();
  device_.reset();
}

bool Communicator::sends_from_device() const {
  return device_ != nullptr && device_->takes_messages();
}

bool Communicator::is_on_device(const Ask& ask) const {
  if (device_ == nullptr || ask.count == 0) return false;
  return device_->owns(ask.output) || device_->owns(ask.input);
}

bool Communicator::is_on_device(const void* message, std::int64_t count) const {
  return count > 0 && sends_from_device() && device_->owns(message);
}

Request Communicator::start_on_device(const Ask& ask, Call call) {
  if (ask.factor != nullptr)
    throw UsageError("a sum with a factor on device memory; legal are buffers of the host");
  Counter& counter = counter_of(*engine_, ask.op);
  const Timed timed(counter);
  const DeviceDoor::Started started = device_->start(ask, call.algorithm);
  ++counter.calls;
  counter.elements += ask.count;
  counter.payload_bytes += full_bytes(ask.op, ask.count, ask.dtype, world());
  counter.sent_bytes += started.sent_bytes;
  Request request;
  request.door_ = device_.get();
  request.door_life_ = device_;
  request.number_ = started.ticket;
  return request;
}

void Communicator::run(Ask ask, Call call) {
  ask.factor = call.factor;
  if (engine_->group() != nullptr) return engine_->group()->add(*this, ask, call);
  if (is_on_device(ask)) return start_on_device(ask, call).wait();
  engine_->run(ask, call.algorithm);
}

Request Communicator::start(Ask ask, Call call) {
  outside_group("a call that returns a request");
  ask.factor = call.factor;
  return start_now(ask, call);
}

Request Communicator::start_now(const Ask& ask, Call call) {
  if (is_on_device(ask)) return start_on_device(ask, call);
  const Timed timed(counter_of(*engine_, ask.op));
  Request request;
  request.operation_ = &engine_->start(ask, call.algorithm);
  request.number_ = request.operation_->number;
  request.engine_ = engine_;
  return request;
}

void Communicator::outside_group(const char* what) const {
  if (engine_->group() == nullptr) return;
  throw UsageError(std::string(what) +
                   " inside a group, whose calls are done when it is run; legal there are blocking "
                   "collectives, send and recv");
}

// Each operation blocking and started, from the same ask.

void Communicator::all_reduce(const void* input, void* output, std::int64_t count, DType dtype,
                              ReduceOp op, Call call) {
  run(ask::all_reduce({input, output}, count, dtype, op), call);
}
Request Communicator::start_all_reduce(const void* input, void* output, std::int64_t count,
                                       DType dtype, ReduceOp op, Call call) {
  return start(ask::all_reduce({input, output}, count, dtype, op), call);
}

void Communicator::reduce_scatter(const void* input, void* output, std::int64_t count, DType dtype,
                                  ReduceOp op, Call call) {
  run(ask::reduce_scatter({input, output}, count, dtype, op), call);
}
Request Communicator::start_reduce_scatter(const void* input, void* output, std::int64_t count,
                                           DType dtype, ReduceOp op, Call call) {
  return start(ask::reduce_scatter({input, output}, count, dtype, op), call);
}

void Communicator::all_gather(const void* input, void* output, std::int64_t count, DType dtype,
                              Call call) {
  run(ask::all_gather({input, output}, count, dtype), call);
}
Request Communicator::start_all_gather(const void* input, void* output, std::int64_t count,
                                       DType dtype, Call call) {
  return start(ask::all_gather({input, output}, count, dtype), call);
}

void Communicator::broadcast(const void* input, void* output, std::int64_t count, DType dtype,
                             int root, Call call) {
  run(ask::broadcast({input, output}, count, dtype, root), call);
}
Request Communicator::start_broadcast(const void* input, void* output, std::int64_t count,
                                      DType dtype, int root, Call call) {
  return start(ask::broadcast({input, output}, count, dtype, root), call);
}

void Communicator::reduce(const void* input, void* output, std::int64_t count, DType dtype,
                          ReduceOp op, int root, Call call) {
  run(ask::reduce({input, output}, count, dtype, op, root), call);
}
Request Communicator::start_reduce(const void* input, void* output, std::int64_t count, DType dtype,
                                   ReduceOp op, int root, Call call) {
  return start(ask::reduce({input, output}, count, dtype, op, root), call);
}

void Communicator::gather(const void* input, void* output, std::int64_t count, DType dtype,
                          int root, Call call) {
  run(ask::gather({input, output}, count, dtype, root), call);
}
Request Communicator::start_gather(const void* input, void* output, std::int64_t count, DType dtype,
                                   int root, Call call) {
  return start(ask::gather({input, output}, count, dtype, root), call);
}

void Communicator::scatter(const void* input, void* output, std::int64_t count, DType dtype,
                           int root, Call call) {
  run(ask::scatter({input, output}, count, dtype, root), call);
}
Request Communicator::start_scatter(const void* input, void* output, std::int64_t count,
                                    DType dtype, int root, Call call) {
  return start(ask::scatter({input, output}, count, dtype, root), call);
}

void Communicator::all_to_all(const void* input, void* output, std::int64_t count, DType dtype,
                              Call call) {
  run(ask::all_to_all({input, output}, count, dtype), call);
}
Request Communicator::start_all_to_all(const void* input, void* output, std::int64_t count,
                                       DType dtype, Call call) {
  return start(ask::all_to_all({input, output}, count, dtype), call);
}

void Communicator::reduce_scatter_v(const void* input, void* output, Counts counts, DType dtype,
                                    ReduceOp op, Call call) {
  run(ask::reduce_scatter_v({input, output}, counts, dtype, op), call);
}
Request Communicator::start_reduce_scatter_v(const void* input, void* output, Counts counts,
                                             DType dtype, ReduceOp op, Call call) {
  return start(ask::reduce_scatter_v({input, output}, counts, dtype, op), call);
}

void Communicator::all_gather_v(const void* input, void* output, Counts counts, DType dtype,
                                Call call) {
  run(ask::all_gather_v({input, output}, counts, dtype), call);
}
Request Communicator::start_all_gather_v(const void* input, void* output, Counts counts,
                                         DType dtype, Call call) {
  return start(ask::all_gather_v({input, output}, counts, dtype), call);
}

void Communicator::gather_v(const void* input, void* output, Counts counts, DType dtype, int root,
                            Call call) {
  run(ask::gather_v({input, output}, counts, dtype, root), call);
}
Request Communicator::start_gather_v(const void* input, void* output, Counts counts, DType dtype,
                                     int root, Call call) {
  return start(ask::gather_v({input, output}, counts, dtype, root), call);
}

void Communicator::scatter_v(const void* input, void* output, Counts counts, DType dtype, int root,
                             Call call) {
  run(ask::scatter_v({input, output}, counts, dtype, root), call);
}
Request Communicator::start_scatter_v(const void* input, void* output, Counts counts, DType dtype,
                                      int root, Call call) {
  return start(ask::scatter_v({input, output}, counts, dtype, root), call);
}

void Communicator::all_to_all_v(const void* input, Counts input_counts, void* output,
                                Counts output_counts, DType dtype, Call call) {
  run(ask::all_to_all_v({input, output}, input_counts, output_counts, dtype), call);
}
Request Communicator::start_all_to_all_v(const void* input, Counts input_counts, void* output,
                                         Counts output_counts, DType dtype, Call call) {
  return start(ask::all_to_all_v({input, output}, input_counts, output_counts, dtype), call);
}

void Communicator::barrier(Call call) { run({}, call); }
Request Communicator::start_barrier(Call call) { return start({}, call); }

// ---- point to point

namespace {

// From here on, of whatever type, a message takes long beside two reads of a clock.
constexpr std::int64_t kFewElements = 1024;

int weight_of(const Counter& counter, std::int64_t count) {
  return count < kFewElements ? Timed::weight_of_few_bytes(counter) : 1;
}

}  // namespace

void Communicator::send(const void* data, std::int64_t count, DType dtype, int peer, int tag) {
  if (engine_->group() != nullptr) {
    return engine_->group()->add(
        *this,
        {.sends = true, .source = data, .count = count, .dtype = dtype, .peer = peer, .tag = tag});
  }
  if (is_on_device(data, count)) return start_send(data, count, dtype, peer, tag).wait();
  Counter& counter = engine_->counters().send;
  const Timed timed(counter, weight_of(counter, count));
  engine_->send(data, count, dtype, peer, tag);
}

void Communicator::recv(void* data, std::int64_t count, DType dtype, int peer, int tag) {
  if (engine_->group() != nullptr) {
    return engine_->group()->add(
        *this, {.target = data, .count = count, .dtype = dtype, .peer = peer, .tag = tag});
  }
  if (is_on_device(data, count)) return start_recv(data, count, dtype, peer, tag).wait();
  Counter& counter = engine_->counters().recv;
  const Timed timed(counter, weight_of(counter, count));
  engine_->recv(data, count, dtype, peer, tag);
}

Request Communicator::note_message(Counter& counter, std::int64_t count, DType dtype,
                                   std::uint64_t ticket, bool sends) {
  const std::int64_t size_bytes = count * static_cast<std::int64_t>(size_of(dtype));
  ++counter.calls;
  counter.elements += count;
  counter.payload_bytes += size_bytes;
  if (sends) counter.sent_bytes += size_bytes;
  Request request;
  request.door_ = device_.get();
  request.door_life_ = device_;
  request.number_ = ticket;
  return request;
}

Request Communicator::start_send(const void* data, std::int64_t count, DType dtype, int peer,
                                 int tag) {
  outside_group("a call that returns a request");
  Counter& counter = engine_->counters().send;
  const Timed timed(counter);
  if (is_on_device(data, count)) {
    const std::uint64_t ticket = device_->start_send(data, count, dtype, {peer, tag});
    return note_message(counter, count, dtype, ticket, true);
  }
  Request request;
  request.transfer_ = &engine_->start_send(data, count, dtype, peer, tag);
  request.engine_ = engine_;
  return request;
}

Request Communicator::start_recv(void* data, std::int64_t count, DType dtype, int peer, int tag) {
  outside_group("a call that returns a request");
  Counter& counter = engine_->counters().recv;
  const Timed timed(counter);
  if (is_on_device(data, count)) {
    const std::uint64_t ticket = device_->start_recv(data, count, dtype, {peer, tag});
    return note_message(counter, count, dtype, ticket, false);
  }
  Request request;
  request.transfer_ = &engine_->start_recv(data, count, dtype, peer, tag);
  request.engine_ = engine_;
  return request;
}

// ---- the rest

void Communicator::run_schedule(const sched::Schedule& schedule, const void* input, void* output,
                                std::int64_t count, DType dtype, ReduceOp op) {
  outside_group("run_schedule");
  engine_->run_schedule(
      schedule, {schedule.contract.op, input, output, count, dtype, op, schedule.contract.root});
}

Symmetric Communicator::allocate(std::size_t size_bytes) {
  outside_group("allocate");
  std::byte* data = engine_->allocate(size_bytes);
  return {data, SymmetricDeleter{engine_->regions()}};
}

void SymmetricDeleter::operator()(std::byte* pointer) const { regions->remove(pointer); }

Communicator::Choice Communicator::explain(sched::Collective op, std::int64_t count,
                                           DType dtype) const {
  const Selection selection = select(op, full_bytes(op, count, dtype, world()), engine_->machine());
  return {std::string(selection.algorithm), std::string(selection.reason)};
}

const Counters& Communicator::counters() const { return engine_->all_counters(); }
void Communicator::reset_counters() { engine_->reset_counters(); }

}  // namespace sinew::comm
