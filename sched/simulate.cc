#include "sched/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/text.h"
#include "sched/simulate_cores.h"
#include "sched/simulate_tasks.h"

namespace sinew::sched {

namespace {

constexpr std::uint64_t kMaxInstances = std::uint64_t{1} << 27;
constexpr int kSendLane = 0;
constexpr int kRecvLane = 1;
constexpr int kComputeLane = 2;

// Bytes of each chunk: the vector is cut in blocks, a block in chunks; a barrier moves nothing.
std::vector<std::int64_t> chunk_bytes(const Contract& contract, std::int64_t bytes) {
  std::vector<std::int64_t> sizes;
  const int per_block = contract.chunks_per_block;
  for (int chunk = 0; chunk < contract.chunks(); ++chunk) {
    const Part block = partition(bytes, contract.blocks(), chunk / per_block);
    sizes.push_back(contract.op == Collective::kBarrier
                        ? 0
                        : partition(block.count, per_block, chunk % per_block).count);
  }
  return sizes;
}

// One segment of one task.
struct Instance {
  std::uint32_t segment;
  std::uint32_t task;
  std::uint32_t rank;
  friend auto operator<=>(const Instance&, const Instance&) = default;
};

// What of an instance is over.
enum class Stage : std::uint8_t {
  kWhole,     // a transfer, or a reduction or copy on a rank's own compute lane
  kSending,   // the sender's work for a message
  kTaking,    // the receiver's
  kComputing  // a reduction or copy on a processor
};

struct Event {
  double time;
  std::uint64_t number;  // order of creation breaks ties
  Instance instance;
  Stage stage = Stage::kWhole;
  friend bool operator<(const Event& a, const Event& b) {
    return std::tie(a.time, a.number) > std::tie(b.time, b.number);
  }
};

// The least instance first: earlier segments, then as in the program.
using InstanceQueue = std::priority_queue<Instance, std::vector<Instance>, std::greater<Instance>>;

// A sending port: the sends that are ready, and since when it has been free to start one.
struct Port {
  InstanceQueue queue;
  double free_since = 0;
  int active = 0;
};

// Something of limited capacity that transfers hold, and the ports that wait for it.
struct Shared {
  int capacity = 1;
  int active = 0;
  std::vector<std::uint32_t> waiting;
};

// What a lane's transfers hold and cost.
struct Route {
  Link link;
  Link work;  // at each end
  double reduce_s_per_byte = 0;
  std::uint32_t port = 0;
  std::vector<std::uint32_t> held;  // into shared_
};

class Simulator {
 public:
  Simulator(const Schedule& schedule, const TaskPrograms& tasks, const Topology& topology,
            const SimulateOptions& options)
      : schedule_(schedule),
        topology_(topology),
        options_(options),
        segments_(static_cast<std::uint32_t>(
            std::max(options.segments > 0 ? options.segments : schedule.segments, 1))),
        tasks_(tasks),
        sizes_(chunk_bytes(schedule.contract, options.bytes)),
        counts_cores_(!topology.cores.empty() || !topology.works.empty()),
        cores_(topology) {
    number_instances();
    set_up_routes();
    for (std::uint32_t rank = 0; rank < tasks_.programs.size(); ++rank) {
      for (std::uint32_t task = 0; task < tasks_.programs[rank].size(); ++task) {
        for (std::uint32_t segment = 0; segment < segments_; ++segment) {
          count_waits({segment, task, rank});
        }
      }
    }
  }

  Simulation run() {
    while (true) {
      settle();
      if (events_.empty()) break;
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        finish_stage(event);
        begin_ready();
        begin_on_cores();
      }
    }
    if (done_ != waits_.size()) {
      throw Error(fmt::format("schedule {} stops half way: {} of {} steps never happen",
                              schedule_.name, waits_.size() - done_, waits_.size()));
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] const Task& task_of(const Instance& at) const {
    return tasks_.programs[at.rank][at.task];
  }
  [[nodiscard]] const TaskLane& lane_of(const Task& task) const {
    return tasks_.lanes[static_cast<std::size_t>(task.lane)];
  }
  [[nodiscard]] const Route& route_of(const Task& task) const {
    return routes_[static_cast<std::size_t>(task.lane)];
  }
  [[nodiscard]] std::uint32_t& waits_of(const Instance& at) {
    return waits_[(first_[at.rank] + at.task) * segments_ + at.segment];
  }
  [[nodiscard]] bool rendezvous() const { return options_.credits == 0; }
  [[nodiscard]] bool in_program_order() const { return options_.order == PortOrder::kProgram; }

  void number_instances() {
    std::uint64_t count = 0;
    for (const std::vector<Task>& program : tasks_.programs) {
      first_.push_back(count);
      count += program.size();
    }
    if (count * segments_ > kMaxInstances) {
      throw UsageError(
          fmt::format("{} segments of {} steps are too many to simulate; at most {} "
                      "in all",
                      segments_, count, kMaxInstances));
    }
    if (in_program_order() && (segments_ != 1 || topology_.ports == 0)) {
      throw UsageError(
          fmt::format("program order of ports with {} segments and {} ports; legal: 1 "
                      "segment and at least 1 port",
                      segments_, topology_.ports));
    }
    waits_.assign(count * segments_, 0);
    compute_free_.assign(tasks_.programs.size(), 0);
    next_send_.assign(tasks_.programs.size(), 0);
    next_receive_.assign(tasks_.programs.size(), 0);
    next_compute_.assign(tasks_.programs.size(), 0);
    waiting_compute_.resize(tasks_.programs.size());
    result_.rank_seconds.assign(tasks_.programs.size(), 0);
    result_.contended = counts_cores_ || options_.credits >= 0 || in_program_order();
    if (!options_.timeline) return;
    result_.timeline.title = fmt::format("{} {}, {}", name_of(schedule_.contract.op),
                                         schedule_.name, counted(schedule_.contract.world, "rank"));
    result_.timeline.lane_names = {"send", "recv", "reduce"};
  }

  // Transfers hold their lane, the topology's shares and the receiver's port. With any number of
  // ports each lane is its own.
  void set_up_routes() {
    const bool per_lane = topology_.ports == 0;
    const std::size_t lanes = tasks_.lanes.size();
    const std::size_t receivers = lanes + topology_.shares.size();
    ports_.resize(per_lane ? lanes : tasks_.programs.size());
    shared_.resize(receivers);
    if (!per_lane) shared_.resize(receivers + ports_.size(), {topology_.ports, 0, {}});
    for (std::size_t i = 0; i < lanes; ++i) {
      const TaskLane& lane = tasks_.lanes[i];
      const auto source = static_cast<std::size_t>(lane.source);
      const auto target = static_cast<std::size_t>(lane.target);
      Route route{topology_.link(lane.source, lane.target),
                  topology_.work(lane.source, lane.target),
                  topology_.reduction(lane.source, lane.target),
                  static_cast<std::uint32_t>(per_lane ? i : source),
                  {static_cast<std::uint32_t>(i)}};
      for (const int share : topology_.shares_of(lane.source, lane.target)) {
        route.held.push_back(static_cast<std::uint32_t>(lanes + static_cast<std::size_t>(share)));
      }
      if (!per_lane) route.held.push_back(static_cast<std::uint32_t>(receivers + target));
      routes_.push_back(std::move(route));
    }
  }

  // What an instance waits for: its dependences; a message also for its turn in the lane; a receive
  // for its send; a send for its credit, or in a rendezvous for the receive to be all but begun.
  void count_waits(const Instance& at) {
    const Task& task = task_of(at);
    std::uint32_t& waits = waits_of(at);
    waits = task.waits;
    if (task.lane >= 0) {
      const std::uint64_t number = std::uint64_t{task.lane_index} * segments_ + at.segment;
      if (number > 0) ++waits;
      if (task.verb == Verb::kSend) {
        const bool held =
            options_.credits > 0 && number >= static_cast<std::uint64_t>(options_.credits);
        if (rendezvous() || held) ++waits;
      } else if (!rendezvous()) {
        ++waits;
      }
    }
    if (waits == 0) ready_.push_back(at);
  }

  void release(const Instance& at) {
    if (--waits_of(at) == 0) ready_.push_back(at);
  }

  void begin_ready() {
    for (std::size_t next = 0; next < ready_.size(); ++next) prepare(Instance(ready_[next]));
    ready_.clear();
  }

  // All that this instance waited for has happened.
  void prepare(const Instance& at) {
    const Task& task = task_of(at);
    if (task.verb == Verb::kSend) {
      const double work_s = seconds_over(route_of(task).work, at);
      if (work_s > 0) return put_on_cores(at, Stage::kSending, work_s);
      offer(at);
    } else if (task.lane >= 0 && rendezvous()) {
      const TaskLane& lane = lane_of(task);
      release({at.segment, lane.sends[task.lane_index], static_cast<std::uint32_t>(lane.source)});
    } else {
      begin(at);
    }
  }

  // A message to its sending port.
  void offer(const Instance& at) {
    const std::uint32_t port = route_of(task_of(at)).port;
    ports_[port].queue.push(at);
    touched_.push_back(port);
  }

  [[nodiscard]] double seconds_over(const Link& link, const Instance& at) const {
    return link.latency_s + static_cast<double>(bytes_of(at)) * link.cost_s_per_byte;
  }

  void put_on_cores(const Instance& at, Stage stage, double seconds) {
    const std::uint32_t rank =
        stage == Stage::kTaking ? static_cast<std::uint32_t>(task_of(at).peer) : at.rank;
    std::uint64_t what = 0;
    if (free_works_.empty()) {
      what = works_.size();
      works_.emplace_back();
    } else {
      what = free_works_.back();
      free_works_.pop_back();
    }
    works_[what] = {at, stage};
    cores_.add({rank, what, seconds});
  }

  void begin_on_cores() {
    for (const Cores::Item& item : cores_.begin()) {
      const auto [at, stage] = works_[item.what];
      free_works_.push_back(item.what);
      const double end = now_ + item.seconds;
      events_.push({end, event_number_++, at, stage});
      note(at, item.rank, kComputeLane, now_, end);
    }
  }

  void finish_stage(const Event& event) {
    const Instance& at = event.instance;
    switch (event.stage) {
      case Stage::kWhole:
        return finish(at);
      case Stage::kSending:
        cores_.done(at.rank);
        return offer(at);
      case Stage::kTaking:
        cores_.done(static_cast<std::uint32_t>(task_of(at).peer));
        return hand_over(at);
      case Stage::kComputing:
        cores_.done(at.rank);
        return finish(at);
    }
  }

  void begin(const Instance& at) {
    const Task& task = task_of(at);
    if (task.lane >= 0) pass_turn(at);
    switch (task.verb) {
      case Verb::kSend:
        return start_transfer(at);
      case Verb::kRecv:
        return finish(at);
      case Verb::kRecvReduce:
      case Verb::kReduce:
      case Verb::kCopy:
        return compute(at);
    }
  }

  // The next message of the lane, at this end, may begin as far as its lane is concerned.
  void pass_turn(const Instance& at) {
    if (at.segment + 1 < segments_) return release({at.segment + 1, at.task, at.rank});
    const Task& task = task_of(at);
    const TaskLane& lane = lane_of(task);
    const std::vector<std::uint32_t>& end = task.verb == Verb::kSend ? lane.sends : lane.receives;
    if (task.lane_index + 1 < end.size()) release({0, end[task.lane_index + 1], at.rank});
  }

  // The compute lane serves in the order of readiness, which is the order of these calls, or in the
  // order of the program.
  void compute(const Instance& at) {
    if (!in_program_order()) return start_compute(at);
    InstanceQueue& waiting = waiting_compute_[at.rank];
    waiting.push(at);
    while (!waiting.empty() && task_of(waiting.top()).compute_index == next_compute_[at.rank]) {
      ++next_compute_[at.rank];
      start_compute(waiting.top());
      waiting.pop();
    }
  }

  [[nodiscard]] double compute_s_per_byte(const Task& task) const {
    if (task.verb == Verb::kCopy) return topology_.copy_s_per_byte;
    return task.lane < 0 ? topology_.reduce_s_per_byte : route_of(task).reduce_s_per_byte;
  }

  void start_compute(const Instance& at) {
    const double cost = compute_s_per_byte(task_of(at));
    if (counts_cores_) {
      return put_on_cores(at, Stage::kComputing, static_cast<double>(bytes_of(at)) * cost);
    }
    const double start = std::max(now_, compute_free_[at.rank]);
    if (start > now_) result_.contended = true;
    const double end = start + static_cast<double>(bytes_of(at)) * cost;
    compute_free_[at.rank] = end;
    events_.push({end, event_number_++, at});
    note(at, at.rank, kComputeLane, start, end);
  }

  // Starts every transfer that can, from the ports that have been free longest.
  void settle() {
    const auto begin_all = [&] {
      begin_ready();
      begin_on_cores();
    };
    for (begin_all(); !touched_.empty(); begin_all()) {
      std::sort(touched_.begin(), touched_.end());
      touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
      std::vector<std::tuple<double, std::uint32_t, std::uint32_t>> candidates;
      for (const std::uint32_t port : touched_) {
        if (ports_[port].queue.empty()) continue;
        candidates.emplace_back(ports_[port].free_since, ports_[port].queue.top().task, port);
      }
      touched_.clear();
      std::sort(candidates.begin(), candidates.end());
      for (const auto& candidate : candidates) try_start(std::get<2>(candidate));
    }
  }

  void try_start(std::uint32_t number) {
    Port& port = ports_[number];
    if (port.queue.empty()) return;
    const Instance at = port.queue.top();
    note_wait(port);
    if (port.active >= std::max(topology_.ports, 1)) return;
    if (in_program_order() && task_of(at).port_index != next_send_[at.rank]) return;
    const Route& route = route_of(task_of(at));
    const bool turn = receivers_turn(at);
    for (const std::uint32_t held : route.held) {
      // The receiving port comes last: who waits for a turn waits there.
      const bool last = held == route.held.back();
      if (shared_[held].active < shared_[held].capacity && (turn || !last)) continue;
      shared_[held].waiting.push_back(number);
      return;
    }
    for (const std::uint32_t held : route.held) ++shared_[held].active;
    ++port.active;
    ++next_send_[at.rank];
    ++next_receive_[static_cast<std::size_t>(lane_of(task_of(at)).target)];
    port.queue.pop();
    begin(at);
    touched_.push_back(number);
  }

  // A message that is alone at its port and waits for the one before it in its lane would do so in
  // any order of serving. Whatever else waits here, another order might have let go first.
  void note_wait(const Port& port) {
    if (result_.contended) return;
    const auto taken = [&](std::uint32_t held) {
      return shared_[held].active >= shared_[held].capacity;
    };
    const std::vector<std::uint32_t>& held = route_of(task_of(port.queue.top())).held;
    const bool alone = port.queue.size() == 1;
    if (alone && taken(held.front())) return;
    result_.contended = !alone || port.active >= std::max(topology_.ports, 1) ||
                        std::any_of(held.begin(), held.end(), taken);
  }

  // Whether the receiver's program order lets this message come next.
  [[nodiscard]] bool receivers_turn(const Instance& at) const {
    if (!in_program_order()) return true;
    const Task& task = task_of(at);
    const TaskLane& lane = lane_of(task);
    const auto target = static_cast<std::size_t>(lane.target);
    return tasks_.programs[target][lane.receives[task.lane_index]].port_index ==
           next_receive_[target];
  }

  void start_transfer(const Instance& at) {
    const Task& task = task_of(at);
    const double end = now_ + seconds_over(route_of(task).link, at);
    events_.push({end, event_number_++, at});
    if (options_.timeline) {
      result_.transfers.push_back({static_cast<int>(at.rank), task.peer, task.first_step,
                                   static_cast<int>(at.segment), now_, end});
    }
    note(at, at.rank, kSendLane, now_, end);
    note(at, task.peer, kRecvLane, now_, end);
  }

  void finish(const Instance& at) {
    ++done_;
    result_.rank_seconds[at.rank] = std::max(result_.rank_seconds[at.rank], now_);
    result_.seconds = std::max(result_.seconds, now_);
    const Task& task = task_of(at);
    if (task.verb == Verb::kSend) {
      deliver(at);
    } else if (task.lane >= 0) {
      return_credit(at);
    }
    for (const std::uint32_t next : task.successors) release({at.segment, next, at.rank});
  }

  void deliver(const Instance& at) {
    const Task& task = task_of(at);
    const Route& route = route_of(task);
    for (const std::uint32_t held : route.held) {
      --shared_[held].active;
      touched_.insert(touched_.end(), shared_[held].waiting.begin(), shared_[held].waiting.end());
      shared_[held].waiting.clear();
    }
    --ports_[route.port].active;
    ports_[route.port].free_since = now_;
    touched_.push_back(route.port);
    const double work_s = seconds_over(route.work, at);
    if (work_s > 0) return put_on_cores(at, Stage::kTaking, work_s);
    hand_over(at);
  }

  // A message that is there to its receive.
  void hand_over(const Instance& at) {
    const Task& task = task_of(at);
    const TaskLane& lane = lane_of(task);
    const Instance receive = {at.segment, lane.receives[task.lane_index],
                              static_cast<std::uint32_t>(lane.target)};
    if (rendezvous()) {
      begin(receive);
    } else {
      release(receive);
    }
  }

  void return_credit(const Instance& at) {
    if (options_.credits <= 0) return;
    const Task& task = task_of(at);
    const TaskLane& lane = lane_of(task);
    const std::uint64_t number = std::uint64_t{task.lane_index} * segments_ + at.segment +
                                 static_cast<std::uint64_t>(options_.credits);
    if (number / segments_ >= lane.sends.size()) return;
    release({static_cast<std::uint32_t>(number % segments_), lane.sends[number / segments_],
             static_cast<std::uint32_t>(lane.source)});
  }

  [[nodiscard]] std::int64_t bytes_of(const Instance& at) const {
    const Task& task = task_of(at);
    const Program& program = schedule_.programs[at.rank];
    std::int64_t bytes = 0;
    for (std::uint32_t s = task.first_step; s < task.first_step + task.steps; ++s) {
      const Step& step = program.steps[s];
      for (std::uint32_t i = 0; i < step.chunks; ++i) {
        const std::int64_t chunk = sizes_[chunk_of(program, step.target, i)];
        bytes += partition(chunk, segments_, at.segment).count;
      }
    }
    return bytes;
  }

  // A span labelled by the first chunk and what happens to it: "3>1" sent to 1, "3<0" received from
  // 0, "3+" reduced, "3=" copied, "3>" and "3<" a processor's work for a message out and in.
  void note(const Instance& at, std::size_t rank, int lane, double start, double end) {
    if (!options_.timeline || end <= start) return;
    const Task& task = task_of(at);
    const Program& program = schedule_.programs[at.rank];
    std::string label =
        fmt::format("{}", chunk_of(program, program.steps[task.first_step].target, 0));
    if (lane == kComputeLane && task.verb == Verb::kSend) {
      label += rank == at.rank ? ">" : "<";
    } else if (lane == kComputeLane) {
      label += task.verb == Verb::kCopy ? "=" : "+";
    } else {
      label += lane == kSendLane ? fmt::format(">{}", task.peer) : fmt::format("<{}", at.rank);
    }
    result_.timeline.spans.push_back({static_cast<int>(rank), lane, std::move(label), start, end,
                                      static_cast<int>(at.segment % 2)});
  }

  const Schedule& schedule_;
  const Topology& topology_;
  const SimulateOptions& options_;
  std::uint32_t segments_;
  const TaskPrograms& tasks_;
  std::vector<std::int64_t> sizes_;  // [chunk] bytes
  struct Work {
    Instance at;
    Stage stage;
  };
  bool counts_cores_;
  Cores cores_;
  std::vector<Work> works_;                // on processors or waiting for them
  std::vector<std::uint64_t> free_works_;  // of them, over
  std::vector<std::uint64_t> first_;       // [rank] number of its first task
  std::vector<std::uint32_t> waits_;       // [task * segments + segment]
  std::vector<Instance> ready_;            // waits are over, not prepared yet
  std::vector<Route> routes_;              // [lane]
  std::vector<Port> ports_;
  std::vector<Shared> shared_;
  std::vector<std::uint32_t> touched_;       // ports that may start something
  std::vector<double> compute_free_;         // [rank]
  std::vector<std::uint32_t> next_send_;     // [rank] how many sends have started
  std::vector<std::uint32_t> next_receive_;  // [rank] how many messages to it have started
  std::vector<std::uint32_t> next_compute_;
  std::vector<InstanceQueue> waiting_compute_;  // [rank] ready, but not their turn
  std::priority_queue<Event> events_;
  std::uint64_t event_number_ = 0;
  std::uint64_t done_ = 0;
  double now_ = 0;
  Simulation result_;
};

struct Counting {
  const Schedule& schedule;
  const TaskPrograms& tasks;
  PortOrder order;

  [[nodiscard]] double seconds(Link link, double reduce) const {
    SimulateOptions options;
    options.timeline = false;
    options.order = order;
    options.bytes = vector_bytes();
    const Topology topology = homogeneous(schedule.contract.world, link, reduce);
    return Simulator(schedule, tasks, topology, options).run().seconds;
  }

  // Every segment of every chunk is one byte.
  [[nodiscard]] std::int64_t vector_bytes() const {
    return std::int64_t{schedule.contract.chunks()} * std::max(schedule.segments, 1);
  }

  [[nodiscard]] Cost count() const {
    const auto vector = static_cast<double>(vector_bytes());
    return {seconds({1, 0}, 0), seconds({0, 1}, 0) / vector, seconds({0, 0}, 1) / vector};
  }
};

void check_worlds(const Schedule& schedule, const Topology& topology) {
  if (topology.world == schedule.contract.world) return;
  throw UsageError(fmt::format("topology {} has {}, the schedule {}; both must be equal",
                               topology.name, counted(topology.world, "rank"),
                               schedule.contract.world));
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Topology& topology,
                    const SimulateOptions& options) {
  check_worlds(schedule, topology);
  return Simulator(schedule, lower_to_tasks(schedule), topology, options).run();
}

Simulation simulate_fastest(const Schedule& schedule, const Topology& topology,
                            const SimulateOptions& options) {
  check_worlds(schedule, topology);
  const TaskPrograms tasks = lower_to_tasks(schedule);
  Simulation fastest = Simulator(schedule, tasks, topology, options).run();
  if (!fastest.contended) return fastest;
  SimulateOptions awaited = options;
  awaited.credits = 0;
  SimulateOptions ordered = options;
  ordered.order = PortOrder::kProgram;
  for (const SimulateOptions& other : {awaited, ordered}) {
    try {
      Simulation simulation = Simulator(schedule, tasks, topology, other).run();
      if (simulation.seconds < fastest.seconds) fastest = std::move(simulation);
    } catch (const Error&) {
      // This schedule cannot be served so.
    }
  }
  return fastest;
}

Cost count_cost(const Schedule& schedule) {
  const TaskPrograms tasks = lower_to_tasks(schedule);
  const Cost ready = Counting{schedule, tasks, PortOrder::kReady}.count();
  try {
    const Cost ordered = Counting{schedule, tasks, PortOrder::kProgram}.count();
    return {std::min(ready.rounds, ordered.rounds), std::min(ready.bytes, ordered.bytes),
            std::min(ready.reduced, ordered.reduced)};
  } catch (const Error&) {
    return ready;  // the programs' orders wait for each other
  }
}

}  // namespace sinew::sched
