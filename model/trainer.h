// Trainer: one training run on all ranks of a communicator: options, steps, evaluation,
// checkpoints, reports.
//
// Never does: parse command lines or print (tools/ does). Threads: one rank, one thread. Every
// method is collective: all ranks call it in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "model/config.h"
#include "model/data.h"
#include "model/optimizer.h"
#include "sched/pipeline/schedule.h"
#include "sched/pipeline/verify.h"
#include "sched/plan/grid.h"
#include "sched/plan/run_shape.h"
#include "sched/timeline.h"

namespace sinew::model {

// Every field is an option of `sinew train` of the same name.
struct TrainOptions {
  std::string model = "byte-small";
  std::string data;
  std::string data_format = "auto";  // token_formats.h
  std::string tokenizer;             // folder of vocab.json and merges.txt; empty: bytes are tokens
  int tp = 1;
  int cp = 1;
  std::string cp_mode = "zigzag";  // zigzag, contiguous, striped, ulysses
  bool sequence_parallel = false;  // with tp: norms, residuals and dropout by rows
  int row_chunks = 1;              // of products whose rows are shared out (sched/plan/run_shape.h)
  int pp = 1;
  int dp = 0;  // 0: what the ranks leave
  int zero = 0;
  int shard = 0;                          // of ZeRO: data ranks of one group; 0: all
  std::string reshard_after = "forward";  // under zero 3: when gathered weights are freed; backward
  std::string order = std::string(sched::kDefaultOrder);
  std::string schedule = "1f1b";  // of the table, or the path of a file of one
  int chunks = 0;                 // stages per pipeline rank; 0: the schedule's usual number
  std::int64_t batch = 8;         // sequences of the whole step, over all ranks
  std::int64_t microbatches = 0;  // per data-parallel replica; 0: chosen
  std::int64_t seq = 0;           // 0: the model's max_time
  std::int64_t steps = 100;
  std::string rounding = "nearest";  // of bf16 weights: nearest, of masters; stochastic, without
  std::string dtype = "f32";  // f32, f64, or bf16: weights and activations, f32 everywhere else
  std::string gradients = "auto";  // as wide as their sums; or bf16, of bf16 weights
  double lr = 1e-3;
  double min_lr = -1;  // negative: a tenth of lr
  std::int64_t warmup = 0;
  bool graph = false;       // on a device: later steps repeat the recording of the second
  bool async_save = false;  // checkpoints are written while training goes on
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double clip = 1.0;
  double dropout = 0;
  std::uint64_t seed = 1234;
  std::string offload;             // folder of files that hold the optimizer's state
  std::string init;                // weights from a safetensors file
  std::string resume;              // a checkpoint directory
  std::string recompute = "none";  // none, selective or full; or one for each layer, by commas
  std::string out;  // checkpoints, metrics.jsonl, summary.json; empty: nothing is written
  std::int64_t save_every = 0;  // 0: at the end only (when out is set)
  std::int64_t keep_last = 0;   // checkpoints in out, older ones are removed; 0: all
  std::int64_t eval_every = 0;  // 0: at the end only
  std::int64_t eval_windows = 64;
  double validation_fraction = 0.05;
  int threads = 0;  // per rank; 0: usable cores over local ranks
};

// Options checked against each other, the model and the ranks; everything derived is here.
struct TrainPlan {
  TrainOptions options;  // with all defaults filled in
  Config config;
  sched::Grid grid;
  sched::RunShape run;  // the same to the planner's formulas
  sched::PipeSchedule schedule;
  sched::PipeFacts facts;          // of its proof
  BatchShape microbatch;           // of one microbatch, whole sequences
  std::int64_t replica_batch = 0;  // sequences of one data-parallel replica and step
  // For tests of what compares layouts: a tensor whose gradient one rank finds twice as large as it
  // is, in every step. Empty: none.
  std::string fault;
};

// Throws UsageError in one line: the value, the rule, the legal values. Needs no other rank.
[[nodiscard]] TrainPlan make_plan(const TrainOptions& options, int world);

struct StepMetrics {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;        // mean over the step's targets, nats
  double gradient_norm = 0;
  double lr = 0;
  double tokens_per_s = 0;
  double step_ms = 0;
  bool skipped = false;
  std::string note;  // why a step was skipped
};

// A prediction beside its measurement.
struct Compared {
  std::string name;
  std::string unit;
  double predicted = 0;
  double measured = 0;
};

struct Summary {
  std::string device = "cpu";  // what the run was on
  double loss = 0;
  std::optional<double> validation_loss;  // none without a validation part
  double step_ms_median = 0;
  double tokens_per_s = 0;
  std::vector<Compared> compared;
};

struct TrainDevice;

// The threads of a rank: as many as wanted, or, wanted 0, one for each core that is its own. They
// stay on cores (cores is not empty) where it has as many: threads of one step then never wait for
// each other on one core. Two runs at once on one machine: give each its cores (taskset, mpirun).
struct ThreadPlan {
  int count = 1;
  std::vector<int> cores;  // [count], or empty
};
[[nodiscard]] ThreadPlan plan_threads(int wanted, const comm::Communicator& world);

class Trainer {
 public:
  // Reads data unless given its tokens, allocates, initialises or loads. `world` must outlive the
  // trainer. device: one that refuse_on_device() has nothing against (device.h); null: the
  // processor.
  [[nodiscard]] static std::unique_ptr<Trainer> create(const TrainPlan& plan,
                                                       comm::Communicator& world,
                                                       std::unique_ptr<Tokens> tokens = nullptr,
                                                       const TrainDevice* device = nullptr);
  virtual ~Trainer() = default;

  [[nodiscard]] virtual std::int64_t steps_done() const = 0;
  virtual StepMetrics step() = 0;
  // Mean validation loss over up to eval_windows windows; none when there is no validation
  // part.
  [[nodiscard]] virtual std::optional<double> validate() = 0;
  // With async_save returns before the checkpoint is written: a later step(), save() or
  // finish_save() makes it the newest, and throws what went wrong.
  virtual void save(const std::string& directory) = 0;
  // Waits for what save() began.
  virtual void finish_save() = 0;

  // The pipeline's timeline of the last step, the same on all ranks of a pipeline: data and tensor
  // rank 0's is what rank 0 gets.
  [[nodiscard]] virtual sched::Timeline timeline() = 0;
  // Predicted beside measured; the median of the steps so far.
  [[nodiscard]] virtual Summary summary() = 0;

  // Logical tensors as f64, whole on every rank; for comparisons between layouts and with other
  // programs. Of bf16 weights the masters.
  using Tensors = std::map<std::string, std::vector<double>>;
  [[nodiscard]] virtual Tensors gather_weights() = 0;
  [[nodiscard]] virtual Tensors gather_gradients() = 0;  // of the last step, before clipping

  // Runs one step on this batch instead of the data's: tokens and targets, [batch, T] of the whole
  // step.
  virtual StepMetrics step_on(const std::int32_t* tokens, const std::int32_t* targets) = 0;

  // The last call, needed of a trainer on a device: no other rank uses this one's memory any more.
  virtual void close() = 0;
};

// The loop: steps, evaluation, checkpoints, metrics.jsonl and summary.json under options.out.
// on_step runs on every rank after each step, with the validation loss when there was one.
Summary run_training(
    Trainer& trainer, const TrainPlan& plan, comm::Communicator& world,
    const std::function<void(const StepMetrics&, std::optional<double> validation_loss)>& on_step);

}  // namespace sinew::model
