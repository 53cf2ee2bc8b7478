#include "model/checkpoint_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/element.h"
#include "model/agree.h"
#include "model/checkpoint_parts.h"
#include "model/safetensors.h"
#include "model/shared_output.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial";

// One file to be written: its header and where in it each tensor's data begins.
class Output {
 public:
  Output(std::string path, const Config& config, DType dtype, bool model_file)
      : path_(std::move(path)), begin_(whole_parameters(config).size() * kStateKindCount, 0) {
    std::vector<NamedTensor> tensors;
    std::vector<std::size_t> rows;
    for (std::size_t kind = 0; kind < kStateKindCount; ++kind) {
      if (kStateKinds[kind].in_model_file != model_file) continue;
      for (const Parameter& p : whole_parameters(config)) {
        tensors.push_back({kStateKinds[kind].prefix + p.name, {.dtype = dtype, .shape = p.shape}});
        rows.push_back(state_row(p, kind));
      }
    }
    std::map<std::string, std::string> metadata;
    if (model_file) metadata["format"] = "pt";  // what Hugging Face's loaders ask for
    header_ = make_safetensors_header(tensors, metadata);
    const auto data_begin = static_cast<std::int64_t>(header_.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      begin_[rows[i]] = data_begin + tensors[i].entry.begin;
    size_bytes_ = data_begin + tensors.back().entry.end;
  }

  void create() const { create_shared_output(path_, header_, size_bytes_); }
  void open() { output_.emplace(path_, size_bytes_); }
  void write(std::size_t row, std::int64_t byte_offset, const void* source, std::int64_t bytes) {
    std::memcpy(output_->bytes() + begin_[row] + byte_offset, source,
                static_cast<std::size_t>(bytes));
  }
  void close() {
    output_->flush();
    output_.reset();
  }

 private:
  std::string path_;
  std::string header_;
  std::vector<std::int64_t> begin_;  // by row: of the tensor's data in the file
  std::int64_t size_bytes_ = 0;
  std::optional<SharedOutput> output_;
};

}  // namespace

// A checkpoint in the making: the files, and the runs of elements that this rank writes.
template <typename W>
class CheckpointDraft {
 public:
  CheckpointDraft(const std::string& directory, const TrainingState& state, std::int64_t keep_last)
      : directory_(directory),
        state_(state),
        keep_last_(keep_last),
        partial_(step_path(directory, state.step) + std::string(kPartial)),
        model_(partial_ + "/model.safetensors", state.config, dtype_of_v<W>, true),
        moments_(partial_ + "/optimizer.safetensors", state.config, dtype_of_v<W>, false),
        parts_(whole_parameters(state.config).size() * kStateKindCount, 0) {}

  // On one rank, before any other opens the files.
  void create() const {
    fs::remove_all(partial_);
    fs::create_directories(partial_);
    model_.create();
    moments_.create();
  }

  // Elements [logical, + count) of a parameter's tensor; `source` must live until write().
  void add(const Parameter& p, std::size_t kind, std::int64_t logical, const W* source,
           std::int64_t count) {
    runs_.push_back({state_row(p, kind), kStateKinds[kind].in_model_file, logical, count, source});
  }
  // The same from narrower weights, widened here and now.
  template <typename T>
  void add_widened(const Parameter& p, std::int64_t logical, const T* source, std::int64_t count) {
    std::vector<W>& values = kept_.emplace_back(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] = kernels::widen(source[i]);
    add(p, 0, logical, values.data(), count);
    runs_.back().kept = true;
  }
  // From here on the sources may change.
  void keep_copies() {
    std::int64_t total = 0;
    for (const Run& run : runs_) total += run.kept ? 0 : run.count;
    std::vector<W>& copies = kept_.emplace_back(static_cast<std::size_t>(total));
    W* at = copies.data();
    for (Run& run : runs_) {
      if (run.kept) continue;
      W* const copy = at;
      at = std::copy_n(run.source, run.count, copy);
      run.source = copy;
      run.kept = true;
    }
  }

  void write() {
    model_.open();
    moments_.open();
    for (const Run& run : runs_) {
      constexpr std::int64_t kSize = sizeof(W);
      (run.in_model_file ? model_ : moments_)
          .write(run.row, run.logical * kSize, run.source, run.count * kSize);
      parts_[run.row] += fingerprint(run.source, sizeof(W), run.logical, run.count);
    }
    model_.close();
    moments_.close();
  }

  // Collective, after every rank's write().
  void publish(Parallel& parallel) {
    sum_fingerprints(parallel, parts_);
    agree(parallel.world(), [&] {
      if (parallel.rank() != 0) return;
      for (const Parameter& p : whole_parameters(state_.config)) {
        for (std::size_t kind = 0; kind < kStateKindCount; ++kind)
          state_.fingerprints[kStateKinds[kind].prefix + p.name] = parts_[state_row(p, kind)];
      }
      write_text(partial_ + "/state.json", print_state(state_));
      publish_checkpoint(directory_, partial_, state_.step);
      if (keep_last_ > 0) remove_older(directory_, state_.step, keep_last_);
    });
  }

 private:
  struct Run {
    std::size_t row;
    bool in_model_file;
    std::int64_t logical;
    std::int64_t count;
    const W* source;
    bool kept = false;  // source is ours
  };

  std::string directory_;
  TrainingState state_;
  std::int64_t keep_last_;
  std::string partial_;
  Output model_;
  Output moments_;
  std::vector<Run> runs_;
  std::vector<std::vector<W>> kept_;
  std::vector<std::uint64_t> parts_;  // this rank's, then the sums
};

namespace {

// Its files exist and it knows what this rank writes.
template <typename T>
std::unique_ptr<CheckpointDraft<kernels::Wide<T>>> make_draft(
    const std::string& directory, const TrainingState& state, std::int64_t keep_last,
    Stage<T>& stage, Optimizer<T>& optimizer, Parallel& parallel) {
  auto draft = std::make_unique<CheckpointDraft<kernels::Wide<T>>>(directory, state, keep_last);
  agree(parallel.world(), [&] {
    if (parallel.rank() == 0) draft->create();
  });
  for_each_own_run(stage, optimizer, parallel,
                   [&](const Parameter& p, const Piece& piece, std::int64_t logical) {
                     const std::int64_t at = piece.state_begin;
                     if (optimizer.updates_wide()) {
                       draft->add(p, 0, logical, optimizer.masters(piece), piece.count);
                     } else {
                       draft->add_widened(p, logical, stage.weights() + piece.weight_begin,
                                          piece.count);
                     }
                     draft->add(p, 1, logical, optimizer.first_moment() + at, piece.count);
                     draft->add(p, 2, logical, optimizer.second_moment() + at, piece.count);
                   });
  return draft;
}

}  // namespace

template <typename T>
void save_checkpoint(const std::string& directory, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel, std::int64_t keep_last) {
  const auto draft = make_draft(directory, state, keep_last, stage, optimizer, parallel);
  agree(parallel.world(), [&] { draft->write(); });
  draft->publish(parallel);
}

template <typename T>
CheckpointWriter<T>::CheckpointWriter(Stage<T>& stage, Optimizer<T>& optimizer, Parallel& parallel,
                                      std::function<void()> before_write)
    : stage_(stage),
      optimizer_(optimizer),
      parallel_(parallel),
      before_write_(std::move(before_write)) {}

template <typename T>
CheckpointWriter<T>::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

template <typename T>
void CheckpointWriter<T>::start(const std::string& directory, const TrainingState& state,
                                std::int64_t keep_last) {
  finish();
  draft_ = make_draft(directory, state, keep_last, stage_, optimizer_, parallel_);
  draft_->keep_copies();
  error_ = nullptr;
  done_.store(false, std::memory_order_relaxed);
  thread_ = std::thread([this] {
    try {
      if (before_write_) before_write_();
      draft_->write();
    } catch (...) {
      error_ = std::current_exception();
    }
    done_.store(true, std::memory_order_release);
  });
}

template <typename T>
void CheckpointWriter<T>::poll() {
  if (!pending()) return;
  std::int32_t done = done_.load(std::memory_order_acquire) ? 1 : 0;
  reduce_over(&parallel_.world(), &done, 1, DType::kI32, ReduceOp::kMin);
  if (done != 0) complete();
}

template <typename T>
void CheckpointWriter<T>::finish() {
  if (pending()) complete();
}

template <typename T>
void CheckpointWriter<T>::complete() {
  thread_.join();
  const auto draft = std::move(draft_);  // gone, however this ends
  agree(parallel_.world(), [&] {
    if (error_ != nullptr) std::rethrow_exception(error_);
  });
  draft->publish(parallel_);
}

#define SINEW_INSTANTIATE(T)                                                            \
  template void save_checkpoint<T>(const std::string&, const TrainingState&, Stage<T>&, \
                                   Optimizer<T>&, Parallel&, std::int64_t);             \
  template class CheckpointWriter<T>;
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
