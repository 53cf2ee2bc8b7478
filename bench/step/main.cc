// bench_step: one training step of whole models on one rank and one thread, as a fraction of the
// measured peak of multiply-adds of its type, beside other programs that train the same model. They
// take turns; medians, and the median of the ratios of neighbouring turns. Times are processor
// seconds, which other processes on the machine do not touch.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/kernels/processor_time.h"
#include "bench/kernels/roofline.h"
#include "bench/program.h"
#include "bench/step/peer.h"
#include "comm/communicator.h"
#include "model/config.h"
#include "model/trainer.h"
#include "sched/base/error.h"
#include "sched/plan/flops.h"
#include "tools/args.h"
#include "tools/json_lines.h"
#include "tools/table.h"

namespace sinew::bench {
namespace {

const StepCase kCases[] = {
    {"gpt2-124m", 4, 64, "f32"},
    {"gpt2-124m", 4, 64, "bf16"},
    {"byte-base", 8, 256, "f32"},
    {"byte-base", 8, 256, "bf16"},
};

struct Options {
  std::string json;
  std::string model = "all";
  std::string dtype = "all";
  std::string peer;
  std::string also;
  std::int64_t steps = 3;
  bool alone = false;
};

// Where the Python program for PyTorch lies, and what runs it.
constexpr const char* kTorch =
    "torch=/usr/bin/python3 " SINEW_SOURCE_DIR "/bench/step/torch_step.py";

// NAME=COMMAND.
std::unique_ptr<Peer> start_peer(const std::string& text, const StepCase& step_case) {
  const auto at = text.find('=');
  if (at == std::string::npos || at == 0)
    throw UsageError(fmt::format("peer '{}'; legal values: NAME=COMMAND", text));
  auto peer = std::make_unique<Peer>(text.substr(0, at), text.substr(at + 1), step_case);
  if (!peer->skipped().empty())
    fmt::print("{} is left out of {} {}: {}\n", peer->name(), step_case.model, step_case.dtype,
               peer->skipped());
  return peer;
}

// A trainer whose data are random tokens.
struct OwnTrainer {
  OwnTrainer(const model::TrainPlan& plan, comm::Communicator& world)
      : trainer(model::Trainer::create(plan, world)) {
    const std::int64_t count = plan.options.batch * plan.options.seq;
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i <= count; ++i) {
      state = state * 1664525U + 1013904223U;
      tokens.push_back(static_cast<std::int32_t>(
          (state >> 8) % static_cast<std::uint32_t>(plan.config.vocabulary)));
    }
  }
  double step() {
    const double begin = seconds_now(1);
    trainer->step_on(tokens.data(), tokens.data() + 1);
    return seconds_now(1) - begin;
  }
  std::unique_ptr<model::Trainer> trainer;
  std::vector<std::int32_t> tokens;
};

using Peers = std::vector<std::unique_ptr<Peer>>;

// Seconds of each step, ours and those of every peer; none of a skipped one.
struct Turns {
  std::vector<double> ours;
  std::vector<std::vector<double>> peers;
};

Turns take_turns(OwnTrainer& own, const Peers& peers, std::int64_t steps) {
  Turns turns;
  turns.peers.resize(peers.size());
  // The first step touches memory for the first time.
  (void)own.step();
  std::vector<std::size_t> running;
  for (std::size_t p = 0; p < peers.size(); ++p)
    if (peers[p]->skipped().empty()) running.push_back(p);
  for (const std::size_t p : running) (void)peers[p]->step();
  for (std::int64_t i = 0; i < steps; ++i) {
    turns.ours.push_back(own.step());
    for (const std::size_t p : running) turns.peers[p].push_back(peers[p]->step());
  }
  return turns;
}

class Report {
 public:
  explicit Report(const std::string& json)
      : json_(json),
        table_({{"model", 10, true},
                {"B", 2},
                {"T", 4},
                {"dtype", 5, true},
                {"step ms", 8},
                {"GFLOP/s", 8},
                {"of peak", 8},
                {"beside", 8, true},
                {"its ms", 8},
                {"its time / ours", 15}}) {
    fmt::print("{}", table_.header());
  }
  // A row for each program beside ours, or one without.
  void add(const StepCase& s, const Turns& turns, const Peers& peers) {
    if (peers.empty()) add_row(s, turns.ours, nullptr, {});
    for (std::size_t p = 0; p < peers.size(); ++p)
      add_row(s, turns.ours, peers[p].get(), turns.peers[p]);
  }
  void keep() { json_.keep(); }  // the records, once all are added

 private:
  // peer is null when no program was asked for beside.
  void add_row(const StepCase& s, const std::vector<double>& ours, const Peer* peer,
               const std::vector<double>& peer_seconds) {
    const auto& convention = sched::find_flops_convention("shapes");
    const auto shape = model::shape_of(model::load_config(s.model));
    const double seconds = median(ours);
    const double rate =
        convention.per_token(shape, s.time) * static_cast<double>(s.batch * s.time) / seconds;
    const double peak = s.dtype == "bf16" ? gemm_peak<bf16>() : gemm_peak<float>();
    tools::JsonRecord record;
    record.add("model", s.model)
        .add("batch", s.batch)
        .add("time", s.time)
        .add("dtype", s.dtype)
        .add("steps", static_cast<std::int64_t>(ours.size()))
        .add("step_ms", seconds * 1e3)
        .add("flops_convention", convention.name)
        .add("gflops", rate * 1e-9)
        .add("peak_gflops", peak * 1e-9)
        .add("of_peak", rate / peak);
    std::vector<std::string> cells = {s.model,
                                      fmt::format("{}", s.batch),
                                      fmt::format("{}", s.time),
                                      s.dtype,
                                      tools::three_digits(seconds * 1e3),
                                      tools::three_digits(rate * 1e-9),
                                      fmt::format("{:.3f}", rate / peak)};
    if (peer == nullptr) {
      cells.insert(cells.end(), {"-", "-", "-"});
    } else if (!peer->skipped().empty()) {
      record.add("peer", peer->name()).add("peer_skipped", peer->skipped());
      cells.insert(cells.end(), {peer->name(), "skipped", "-"});
    } else {
      std::vector<double> ratios;
      for (std::size_t i = 0; i < peer_seconds.size(); ++i)
        ratios.push_back(peer_seconds[i] / ours[i]);
      const double ratio = median(ratios);
      record.add("peer", peer->name())
          .add("peer_ms", median(peer_seconds) * 1e3)
          .add("peer_to_ours", ratio);
      cells.insert(cells.end(), {peer->name(), tools::three_digits(median(peer_seconds) * 1e3),
                                 fmt::format("{:.2f}", ratio)});
    }
    fmt::print("{}", table_.row(cells));
    std::fflush(stdout);
    json_.write(record);
  }

  tools::JsonLines json_;
  tools::Table table_;
};

// The plan of a case; empty, and said, when the trainer does not have its type.
std::optional<model::TrainPlan> plan_of(const StepCase& s) {
  model::TrainOptions options;
  options.model = s.model;
  options.batch = s.batch;
  options.seq = s.time;
  options.dtype = s.dtype;
  options.threads = 1;
  try {
    return model::make_plan(options, 1);
  } catch (const UsageError& error) {
    fmt::print("{} {} is left out: {}\n", s.model, s.dtype, error.what());
    return std::nullopt;
  }
}

void run_case(const StepCase& s, const Options& options, Report& report) {
  const auto plan = plan_of(s);
  if (!plan) return;
  Peers peers;
  for (const std::string& text : {options.peer, options.also}) {
    if (options.alone || text.empty()) continue;
    peers.push_back(start_peer(text, s));
  }
  comm::Communicator::run_threads(1, {.transport = "local"}, [&](comm::Communicator& world) {
    OwnTrainer own(*plan, world);
    report.add(s, take_turns(own, peers, options.steps), peers);
  });
}

int run(int argc, char** argv) {
  Options options;
  options.peer = kTorch;
  tools::Args args("bench_step", "one training step of whole models, beside another program's");
  args.option("--json", options.json, "file of one JSON record a line");
  std::vector<std::string> models = {"all"};
  for (const StepCase& s : kCases) {
    if (s.model != models.back()) models.push_back(s.model);
  }
  args.choice("--model", options.model, models, "this model's rows");
  args.choice("--dtype", options.dtype, {"all", "f32", "bf16"}, "rows of this type");
  args.option("--steps", options.steps, "timed steps of each program", {1, 1000});
  args.option("--peer", options.peer, "NAME=COMMAND of the program beside (bench/step/peer.h)");
  args.option("--also", options.also, "one more such program, none when empty");
  args.flag("--alone", options.alone, "no program beside");
  if (!args.parse(std::vector<std::string>(argv + 1, argv + argc))) {
    fmt::print("{}", args.help());
    return 0;
  }
  Report report(options.json);
  for (const StepCase& s : kCases) {
    if (options.model != "all" && s.model != options.model) continue;
    if (options.dtype != "all" && s.dtype != options.dtype) continue;
    run_case(s, options, report);
  }
  report.keep();
  return 0;
}

}  // namespace
}  // namespace sinew::bench

int main(int argc, char** argv) {
  return sinew::bench::run_program("bench_step", sinew::bench::run, argc, argv);
}
