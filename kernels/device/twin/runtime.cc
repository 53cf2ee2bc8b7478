// The runtime seam on the host: a stream is a worker thread that runs queued work in order, so that
// work of two streams without an event between them really races.
#include "kernels/device/runtime.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/device/twin/launch.h"
#include "kernels/device/twin/memory.h"

namespace sinew::device {

namespace {

using Clock = std::chrono::steady_clock;

// run returns what went wrong, or nothing. After a failure a stream skips its work but still marks
// its events, so that nobody waits for ever.
enum class AfterFailure : std::uint8_t { kSkip, kRun };
struct Operation {
  std::function<std::string(twin::Engine&)> run;
  AfterFailure after_failure = AfterFailure::kSkip;
};

// What begin_capture started. Streams that wait for an event recorded in it join it, as CUDA has
// it; their work is then one list in the order of the calls.
struct Capture {
  std::vector<Operation> operations;
  bool open = true;
};

}  // namespace

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  Clock::time_point time;
  std::shared_ptr<Capture> capture;
};

struct Graph::State {
  std::vector<Operation> operations;
};

struct Stream::State {
  twin::Config config = twin::Scope::current();
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation> queue;
  bool busy = false;
  bool closing = false;
  std::string error;
  std::uint64_t serial = 0;  // of the next kernel launch
  std::shared_ptr<Capture> capture;
  std::thread worker;

  void run_worker();
  void push(Operation operation);
  void throw_if_failed();
  [[nodiscard]] bool capturing() const { return capture != nullptr && capture->open; }
};

void Stream::State::run_worker() {
  twin::Engine engine;
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return !queue.empty() || closing; });
    if (queue.empty()) return;
    Operation operation = std::move(queue.front());
    queue.pop_front();
    if (error.empty() || operation.after_failure == AfterFailure::kRun) {
      busy = true;
      lock.unlock();
      std::string failure = operation.run(engine);
      operation.run = nullptr;
      lock.lock();
      busy = false;
      if (error.empty()) error = std::move(failure);
    }
    changed.notify_all();
  }
}

void Stream::State::throw_if_failed() {
  const std::lock_guard lock(mutex);
  if (!error.empty()) throw Error("device twin: " + error + "\n  (" + twin::describe(config) + ")");
}

void Stream::State::push(Operation operation) {
  throw_if_failed();
  if (capturing()) return capture->operations.push_back(std::move(operation));
  const std::lock_guard lock(mutex);
  queue.push_back(std::move(operation));
  changed.notify_all();
}

std::string unavailable() { return {}; }

int count() { return 1; }

void select(int device) {
  if (device != 0)
    throw UsageError("device " + std::to_string(device) + " does not exist; legal values: 0");
}

int selected() { return 0; }

const Properties& properties() {
  thread_local Properties result;
  const twin::Interpreter* interpreter = twin::Scope::current().interpreter;
  result = {.name = "host twin",
            .multiprocessors = twin::Scope::current().multiprocessors,
            .major = interpreter != nullptr ? interpreter->compute_major() : 9,
            .minor = 0,
            .memory_bytes = twin::kMemoryBytes,
            .shared_bytes_block_max = std::size_t{227} * 1024,
            .twin = true};
  return result;
}

bool can_reach(int device, int peer) { return device == 0 && peer == 0; }

void enable_peer(int peer) { select(peer); }

std::string bus_address() { return "twin"; }

LinkKind link_to(const std::string& address) {
  return address == bus_address() ? LinkKind::kTwin : LinkKind::kNone;
}

Memory::Memory(std::size_t size_bytes, MemoryKind kind)
    : data_(twin::allocate_pages(size_bytes)), size_bytes_(size_bytes), kind_(kind) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    kind_ = other.kind_;
  }
  return *this;
}

void Memory::release() noexcept {
  if (data_ != nullptr) twin::free_pages(data_);
  data_ = nullptr;
}

Event::Event() : state_(std::make_shared<State>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) {
  Stream::State& queue = stream.state();
  state_->capture = queue.capturing() ? queue.capture : nullptr;
  if (queue.capturing()) return;
  std::uint64_t mark = 0;
  {
    const std::lock_guard lock(state_->mutex);
    mark = ++state_->recorded;
  }
  const auto reach = [state = state_, mark](twin::Engine&) {
    const std::lock_guard lock(state->mutex);
    state->reached = mark;
    state->time = Clock::now();
    state->changed.notify_all();
    return std::string();
  };
  queue.push({reach, AfterFailure::kRun});
}

void Event::synchronize() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->reached >= state_->recorded; });
}

bool Event::ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reached >= state_->recorded;
}

double Event::seconds_since(const Event& earlier) const {
  synchronize();
  earlier.synchronize();
  return std::chrono::duration<double>(state_->time - earlier.state_->time).count();
}

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::launch(Stream& stream) const {
  for (const Operation& operation : state_->operations) stream.state().push(operation);
}

Stream::Stream() : state_(std::make_unique<State>()) {
  state_->worker = std::thread([state = state_.get()] { state->run_worker(); });
}

Stream::~Stream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
  }
  state_->worker.join();
}

void Stream::copy(void* target, const void* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  state_->push({[=](twin::Engine&) {
    std::memmove(target, source, size_bytes);
    return std::string();
  }});
}

void Stream::fill(void* target, std::uint8_t value, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  state_->push({[=](twin::Engine&) {
    std::memset(target, value, size_bytes);
    return std::string();
  }});
}

void Stream::wait(const Event& event) {
  if (event.state_->capture != nullptr && event.state_->capture->open) {
    state_->capture = event.state_->capture;
    return;
  }
  std::uint64_t mark = 0;
  {
    const std::lock_guard lock(event.state_->mutex);
    mark = event.state_->recorded;
  }
  state_->push({[state = event.state_, mark](twin::Engine&) {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->reached >= mark; });
    return std::string();
  }});
}

void Stream::synchronize() {
  {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->queue.empty() && !state_->busy; });
  }
  state_->throw_if_failed();
}

bool Stream::idle() {
  state_->throw_if_failed();
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty() && !state_->busy;
}

void Stream::begin_capture() { state_->capture = std::make_shared<Capture>(); }

Graph Stream::end_capture() {
  if (!state_->capturing()) throw Error("device twin: end_capture without begin_capture");
  Graph graph;
  graph.state_ = std::make_unique<Graph::State>();
  graph.state_->operations = std::move(state_->capture->operations);
  state_->capture->open = false;
  state_->capture = nullptr;
  return graph;
}

IpcHandle export_memory(const Memory& memory) { return twin::export_pages(memory.data()); }

Mapping::Mapping(const IpcHandle& handle) { data_ = twin::import_pages(handle, size_bytes_); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void Mapping::release() noexcept {
  if (data_ != nullptr) twin::unmap_pages(data_, size_bytes_);
  data_ = nullptr;
}

}  // namespace sinew::device

namespace sinew::twin {

void enqueue(device::Stream& stream, const device::LaunchShape& shape, KernelCall call) {
  auto& state = stream.state();
  const std::string refused = refuse_shape(shape, state.config);
  if (!refused.empty()) throw device::Error("device twin: launch refused: " + refused);
  const std::uint64_t serial = state.serial++;
  state.push({[&config = state.config, shape, serial, kernel = std::move(call)](Engine& engine) {
    if (config.interpreter != nullptr)
      return config.interpreter->run(engine, shape, config, serial, kernel);
    return engine.run(shape, config, serial, kernel.kernel);
  }});
}

}  // namespace sinew::twin
