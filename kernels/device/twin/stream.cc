// The runtime seam on the host: a stream is a worker thread that runs queued work in order, so that
// work of two streams without an event between them really races; a gate may order them further.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/device/runtime.h"
#include "kernels/device/twin/gate.h"
#include "kernels/device/twin/launch.h"
#include "kernels/device/twin/recording.h"
#include "kernels/device/twin/state.h"

namespace sinew::device {

namespace {

using Clock = std::chrono::steady_clock;

// run returns what went wrong, or nothing. After a failure a stream skips its work but still marks
// its events, so that nobody waits for ever.
enum class AfterFailure : std::uint8_t { kSkip, kRun };
struct Operation {
  std::function<std::string(twin::Engine&)> run;
  AfterFailure after_failure = AfterFailure::kSkip;
  bool awaits_peers = false;
};

}  // namespace

// One record of an event: work that waits for it keeps it, whatever is recorded next.
struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = true;  // of an event that was never recorded
  Clock::time_point time;
  std::shared_ptr<struct Recording> recording;  // that it belongs to
  std::size_t mark = 0;                         // its number there

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    time = Clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
};

// What begin_capture started: for each stream that takes part its work in order, and marks that
// order the streams.
struct Recording {
  enum class Kind : std::uint8_t { kRun, kRecord, kWait };
  struct Node {
    Kind kind;
    Operation operation{};
    std::size_t mark = 0;
  };
  std::vector<std::vector<Node>> streams;
  std::size_t marks = 0;
  bool open = true;
  std::string spoilt;

  // Empty, or what is wrong at the end.
  [[nodiscard]] std::string fault() const;
};

std::string Recording::fault() const {
  if (!spoilt.empty()) return spoilt;
  std::set<std::size_t> waited;
  for (const auto& nodes : streams) {
    for (const Node& node : nodes) {
      if (node.kind == Kind::kWait) waited.insert(node.mark);
    }
  }
  for (std::size_t i = 1; i < streams.size(); ++i) {
    const Node& last = streams[i].back();
    if (last.kind == Kind::kWait) continue;  // it has done nothing since
    if (last.kind != Kind::kRecord || !waited.contains(last.mark))
      return "work of a stream that joined the recording is not waited for at its end";
  }
  return {};
}

namespace {

// Of this thread, while it records.
thread_local std::shared_ptr<Recording> this_recording;

// How many queued or running kernels of the streams that this thread made wait for peers.
using Awaiting = std::shared_ptr<std::atomic<int>>;
const Awaiting& awaiting() {
  thread_local const Awaiting kCount = std::make_shared<std::atomic<int>>(0);
  return kCount;
}

[[noreturn]] void throw_spoilt(const std::string& what) {
  throw Error("device twin: work is being recorded: " + what);
}

}  // namespace

struct Graph::State {
  std::vector<std::vector<Recording::Node>> streams;
  std::size_t marks = 0;
  std::vector<std::unique_ptr<Stream>> further;  // one for each but the first
};

struct Stream::State {
  twin::Config config = twin::Scope::current();
  std::mutex mutex;
  std::condition_variable changed;
  struct Queued {
    Operation operation;
    std::shared_ptr<Event::State> waits_for;  // instead
  };
  std::deque<Queued> queue;
  bool busy = false;
  bool closing = false;
  std::string error;
  std::uint64_t serial = 0;  // of the next kernel launch
  Awaiting awaiting_peers = awaiting();
  std::shared_ptr<Recording> recording;
  std::size_t place = 0;  // among its streams
  std::shared_ptr<twin::Gate> gate;
  std::shared_ptr<twin::Gate::Member> member;
  std::thread worker;

  void run_worker();
  void run(Queued& queued, twin::Engine& engine);
  void push(Operation operation);
  void push_wait(std::shared_ptr<Event::State> event);
  void queue_up(Queued queued);
  void record(Recording::Node node) { recording->streams[place].push_back(std::move(node)); }
  void join(const std::shared_ptr<Recording>& other);
  void throw_if_failed();
  [[nodiscard]] bool is_recording() const { return recording != nullptr && recording->open; }
};

namespace {

// The gate of the streams that this thread makes under one configuration.
std::shared_ptr<twin::Gate> current_gate(const twin::Config& config) {
  thread_local std::weak_ptr<twin::Gate> latest;
  if (config.streams == twin::Streams::kFree) return nullptr;
  std::shared_ptr<twin::Gate> gate = latest.lock();
  if (gate == nullptr) {
    gate = std::make_shared<twin::Gate>(config.seed);
    latest = gate;
  }
  return gate;
}

// The host waits for a stream of this gate.
class HostWaits {
 public:
  explicit HostWaits(twin::Gate* gate) : gate_(gate) {
    if (gate_ != nullptr) gate_->host_waits(1);
  }
  ~HostWaits() {
    if (gate_ != nullptr) gate_->host_waits(-1);
  }
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

 private:
  twin::Gate* gate_;
};

}  // namespace

void Stream::State::run(Queued& queued, twin::Engine& engine) {
  using GateState = twin::Gate::State;
  if (queued.waits_for != nullptr) {
    if (member != nullptr) gate->set(*member, GateState::kBlocked);
    queued.waits_for->wait();
    if (member != nullptr) gate->set(*member, GateState::kReady);
    return;
  }
  if (member != nullptr) gate->begin(*member);
  std::string failure = queued.operation.run(engine);
  queued.operation.run = nullptr;
  if (member != nullptr) gate->set(*member, GateState::kReady);
  const std::lock_guard lock(mutex);
  if (error.empty()) error = std::move(failure);
}

void Stream::State::run_worker() {
  twin::Engine engine;
  std::unique_lock lock(mutex);
  while (true) {
    if (queue.empty() && member != nullptr) gate->set(*member, twin::Gate::State::kIdle);
    changed.wait(lock, [&] { return !queue.empty() || closing; });
    if (queue.empty()) return;
    Queued queued = std::move(queue.front());
    queue.pop_front();
    const bool waits = queued.waits_for != nullptr;
    if (error.empty() || (!waits && queued.operation.after_failure == AfterFailure::kRun)) {
      busy = true;
      lock.unlock();
      run(queued, engine);
      lock.lock();
      busy = false;
    }
    if (queued.operation.awaits_peers) --*awaiting_peers;
    changed.notify_all();
  }
}

void Stream::State::throw_if_failed() {
  const std::lock_guard lock(mutex);
  if (!error.empty()) throw Error("device twin: " + error + "\n  (" + twin::describe(config) + ")");
}

void Stream::State::queue_up(Queued queued) {
  throw_if_failed();
  if (queued.operation.awaits_peers) ++*awaiting_peers;
  const std::lock_guard lock(mutex);
  queue.push_back(std::move(queued));
  if (member != nullptr) gate->given(*member);
  changed.notify_all();
}

void Stream::State::push(Operation operation) {
  if (is_recording()) {
    record({.kind = Recording::Kind::kRun, .operation = std::move(operation)});
  } else {
    queue_up({.operation = std::move(operation), .waits_for = nullptr});
  }
}

void Stream::State::push_wait(std::shared_ptr<Event::State> event) {
  queue_up({.operation = {}, .waits_for = std::move(event)});
}

void Stream::State::join(const std::shared_ptr<Recording>& other) {
  if (is_recording()) {
    if (recording != other) throw_spoilt("a stream waits for an event of another recording");
    return;
  }
  recording = other;
  place = other->streams.size();
  other->streams.emplace_back();
}

Event::Event() : state_(std::make_shared<State>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) {
  Stream::State& queue = stream.state();
  auto state = std::make_shared<State>();
  if (queue.is_recording()) {
    state->recording = queue.recording;
    state->mark = queue.recording->marks++;
    queue.record({.kind = Recording::Kind::kRecord, .mark = state->mark});
  } else {
    state->reached = false;
    queue.push({[state](twin::Engine&) {
                  state->reach();
                  return std::string();
                },
                AfterFailure::kRun});
  }
  state_ = std::move(state);
}

void Event::synchronize() const {
  twin::refuse_in_recording("an event is waited for");
  const auto gate = current_gate(twin::Scope::current());
  const HostWaits waits(gate.get());
  state_->wait();
}

bool Event::ready() const {
  twin::refuse_in_recording("an event is asked for");
  const std::lock_guard lock(state_->mutex);
  return state_->reached;
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
  if (stream.state().is_recording()) throw_spoilt("a graph is launched");
  std::vector<std::shared_ptr<Event::State>> marks(state_->marks);
  for (auto& mark : marks) {
    mark = std::make_shared<Event::State>();
    mark->reached = false;
  }
  for (std::size_t i = 0; i < state_->streams.size(); ++i) {
    Stream::State& queue = i == 0 ? stream.state() : state_->further[i - 1]->state();
    for (const Recording::Node& node : state_->streams[i]) {
      switch (node.kind) {
        case Recording::Kind::kRun:
          queue.push(node.operation);
          break;
        case Recording::Kind::kRecord:
          queue.push({[mark = marks[node.mark]](twin::Engine&) {
                        mark->reach();
                        return std::string();
                      },
                      AfterFailure::kRun});
          break;
        case Recording::Kind::kWait:
          queue.push_wait(marks[node.mark]);
          break;
      }
    }
  }
}

Stream::Stream(Urgency) : state_(std::make_unique<State>()) {
  state_->gate = current_gate(state_->config);
  if (state_->gate != nullptr) state_->member = state_->gate->join();
  state_->worker = std::thread([state = state_.get()] { state->run_worker(); });
}

Stream::~Stream() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
  }
  {
    const HostWaits waits(state_->gate.get());
    state_->worker.join();
  }
  if (state_->gate != nullptr) state_->gate->leave(state_->member);
}

namespace {

// A copy of memory that the host may change before it is repeated is none that a graph can hold.
void refuse_recorded_copy(const Stream::State& stream, const void* target, const void* source) {
  if (!stream.is_recording()) return;
  if (twin::known_memory().holds(target) && twin::known_memory().holds(source)) return;
  stream.recording->spoilt = "memory of the host is copied";
  throw_spoilt(stream.recording->spoilt);
}

}  // namespace

void Stream::copy(void* target, const void* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  refuse_recorded_copy(*state_, target, source);
  state_->push({[=](twin::Engine&) {
    std::memmove(target, source, size_bytes);
    return std::string();
  }});
}

void Stream::copy_rows(void* target, const void* source, const Rows& rows) {
  if (rows.rows == 0 || rows.row_bytes == 0) return;
  refuse_recorded_copy(*state_, target, source);
  state_->push({[=](twin::Engine&) {
    for (std::size_t r = 0; r < rows.rows; ++r)
      std::memmove(static_cast<char*>(target) + r * rows.target_stride,
                   static_cast<const char*>(source) + r * rows.source_stride, rows.row_bytes);
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
  const std::shared_ptr<Event::State>& mark = event.state_;
  if (mark->recording != nullptr) {
    if (!mark->recording->open)
      throw Error("device twin: the event was recorded into a graph and marks nothing else");
    state_->join(mark->recording);
    state_->record({.kind = Recording::Kind::kWait, .mark = mark->mark});
    return;
  }
  if (!state_->is_recording()) return state_->push_wait(mark);
  {
    const std::lock_guard lock(mark->mutex);
    if (mark->time == Clock::time_point() && mark->reached) return;  // never recorded
  }
  state_->recording->spoilt = "it waits for an event from outside";
  throw_spoilt(state_->recording->spoilt);
}

void Stream::synchronize() {
  twin::refuse_in_recording("a stream is waited for");
  {
    const HostWaits waits(state_->gate.get());
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->queue.empty() && !state_->busy; });
  }
  state_->throw_if_failed();
}

bool Stream::idle() {
  twin::refuse_in_recording("a stream is asked for");
  state_->throw_if_failed();
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty() && !state_->busy;
}

void Stream::begin_capture() {
  if (this_recording != nullptr) throw_spoilt("another recording begins");
  this_recording = std::make_shared<Recording>();
  state_->join(this_recording);
  twin::watch_for_illegal_accesses();
  twin::known_memory().protect_managed(twin::Touch::kRefused);
}

bool Stream::recording() const { return state_->is_recording(); }

Graph Stream::end_capture() {
  if (!state_->is_recording()) throw Error("device twin: end_capture without begin_capture");
  twin::known_memory().protect_managed(twin::Touch::kAllowed);
  const std::shared_ptr<Recording> recording = std::exchange(this_recording, nullptr);
  recording->open = false;
  state_->recording = nullptr;
  const std::string fault = recording->fault();
  if (!fault.empty()) throw Error("device twin: the recording is spoilt: " + fault);
  Graph graph;
  graph.state_ = std::make_unique<Graph::State>();
  graph.state_->streams = std::move(recording->streams);
  graph.state_->marks = recording->marks;
  for (std::size_t i = 1; i < graph.state_->streams.size(); ++i)
    graph.state_->further.push_back(std::make_unique<Stream>());
  return graph;
}

}  // namespace sinew::device

namespace sinew::twin {

void enqueue(device::Stream& stream, const device::LaunchShape& shape, KernelCall call) {
  auto& state = stream.state();
  const std::string refused = refuse_shape(shape, state.config);
  if (!refused.empty()) throw device::Error("device twin: launch refused: " + refused);
  const std::uint64_t serial = state.serial++;
  // By value: a graph may outlive the stream.
  state.push({.run =
                  [config = state.config, shape, serial, kernel = std::move(call)](Engine& engine) {
                    if (config.interpreter != nullptr)
                      return config.interpreter->run(engine, shape, config, serial, kernel);
                    return engine.run(shape, config, serial, kernel.kernel);
                  },
              .awaits_peers = shape.residency == device::Residency::kAllBlocks});
}

bool awaits_peers() noexcept { return *device::awaiting() > 0; }

void refuse_in_recording(const char* what) {
  if (device::this_recording == nullptr) return;
  spoil_recording(what);
  device::throw_spoilt(what);
}

void spoil_recording(const char* what) noexcept {
  if (device::this_recording != nullptr) device::this_recording->spoilt = what;
}

bool touched_in_recording(const void* address) noexcept {
  if (device::this_recording == nullptr || !known_memory().holds_managed(address)) return false;
  spoil_recording("the host touches managed memory, which recorded work has not reached yet");
  known_memory().protect_managed(Touch::kAllowed);
  return true;
}

void KnownMemory::add(const void* data, std::size_t size_bytes, Kind kind) {
  const std::lock_guard lock(mutex_);
  blocks_[static_cast<const char*>(data)] = {size_bytes, kind, std::this_thread::get_id()};
}

void KnownMemory::remove(const void* data) noexcept {
  const std::lock_guard lock(mutex_);
  blocks_.erase(static_cast<const char*>(data));
}

const KnownMemory::Block* KnownMemory::find(const void* pointer) const {
  const auto* at = static_cast<const char*>(pointer);
  auto found = blocks_.upper_bound(at);
  if (found == blocks_.begin()) return nullptr;
  --found;
  return at < found->first + found->second.size_bytes ? &found->second : nullptr;
}

bool KnownMemory::holds(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return find(pointer) != nullptr;
}

bool KnownMemory::holds_managed(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const Block* block = find(pointer);
  return block != nullptr && block->kind == Kind::kManaged &&
         block->owner == std::this_thread::get_id();
}

void KnownMemory::protect_managed(Touch touch) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [data, block] : blocks_) {
    if (block.kind == Kind::kManaged && block.owner == std::this_thread::get_id())
      protect_pages(data, touch);
  }
}

KnownMemory& known_memory() {
  // Never destroyed: memory may be freed at the program's end.
  static auto* const kMemory = new KnownMemory;
  return *kMemory;
}

}  // namespace sinew::twin
