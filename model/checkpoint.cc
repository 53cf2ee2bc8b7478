#include "model/checkpoint.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "model/agree.h"
#include "model/llmc_model.h"
#include "model/safetensors.h"
#include "model/shared_output.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial";

// What is kept of a parameter, in the order of the fingerprint table: kKinds rows a parameter.
struct Kind {
  const char* prefix;
  bool in_model_file;
};
constexpr Kind kKinds[] = {{"", true}, {"first_moment.", false}, {"second_moment.", false}};
constexpr std::size_t kKindCount = std::size(kKinds);

std::size_t row_of(const Parameter& p, std::size_t kind) {
  return static_cast<std::size_t>(p.index) * kKindCount + kind;
}

// One file to be written: its header and where in it each tensor's data begins.
class Output {
 public:
  Output(std::string path, const Config& config, DType dtype, bool model_file)
      : path_(std::move(path)), begin_(whole_parameters(config).size() * kKindCount, 0) {
    std::vector<NamedTensor> tensors;
    std::vector<std::size_t> rows;
    for (std::size_t kind = 0; kind < kKindCount; ++kind) {
      if (kKinds[kind].in_model_file != model_file) continue;
      for (const Parameter& p : whole_parameters(config)) {
        tensors.push_back({kKinds[kind].prefix + p.name, {.dtype = dtype, .shape = p.shape}});
        rows.push_back(row_of(p, kind));
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

// Calls body(parameter, piece, logical offset) for every run of elements that this rank, of all
// ranks of the run, stands for.
template <typename T, typename Body>
void for_each_own_run(const Stage<T>& stage, const Optimizer<T>& optimizer,
                      const Parallel& parallel, Body&& body) {
  if (!optimizer.stands_for_owned()) return;
  for (const Parameter& p : stage.parameters()) {
    if (!holds_for_all(p, parallel.coordinates())) continue;
    for (const Piece& owned : optimizer.owned()) {
      for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                          [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                            body(p, owned.within(flat, flat + count), logical);
                          });
    }
  }
}

// Adds up all ranks' parts; modulo 2^64, so the order does not matter.
void sum_fingerprints(Parallel& parallel, std::vector<std::uint64_t>& parts) {
  sum_over(&parallel.world(), parts.data(), static_cast<std::int64_t>(parts.size()), DType::kI64);
}

void check_fingerprints(const TrainingState& state, const std::string& where,
                        const std::vector<std::uint64_t>& found, std::size_t kinds) {
  for (const Parameter& p : whole_parameters(state.config)) {
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const std::string name = kKinds[kind].prefix + p.name;
      const auto expected = state.fingerprints.find(name);
      if (expected == state.fingerprints.end())
        throw UsageError(fmt::format("checkpoint '{}' has no fingerprint of '{}'", where, name));
      if (expected->second != found[row_of(p, kind)]) {
        throw UsageError(fmt::format(
            "checkpoint '{}' is damaged: the data of '{}' does not have its fingerprint", where,
            name));
      }
    }
  }
}

std::uint64_t fingerprint_of(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  const std::size_t size = size_of(tensor.dtype);
  return fingerprint(tensor.data + static_cast<std::size_t>(begin) * size, size, begin, count);
}

// File: SafetensorsFile or LlmcModelFile.
template <typename T, typename File>
void read_weights(File& file, Stage<T>& stage) {
  for (const Parameter& p : stage.parameters()) {
    const Tensor tensor = file.require(p.name, p.shape);
    for (const Piece& held : stage.units().held()) {
      T* target = stage.weights() + held.weight_begin;
      for_each_run_within(p, held.flat_begin, held.flat_begin + held.count,
                          [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                            read_elements(tensor, logical, count,
                                          target + (flat - held.flat_begin));
                          });
    }
  }
}

// Of bf16 weights the masters, which the files hold.
template <typename T, typename File>
void read_masters(File& file, const Stage<T>& stage, Optimizer<T>& optimizer) {
  if constexpr (Optimizer<T>::kHasMasters) {
    for (const Parameter& p : stage.parameters()) {
      const Tensor tensor = file.require(p.name, p.shape);
      for (const Piece& owned : optimizer.owned()) {
        for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                            [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                              read_elements(tensor, logical, count,
                                            optimizer.masters(owned) + (flat - owned.flat_begin));
                            });
      }
    }
  }
}

template <typename T>
void read_moments(const SafetensorsFile& file, const Stage<T>& stage, Optimizer<T>& optimizer) {
  for (const Parameter& p : stage.parameters()) {
    const Tensor first = file.require(kKinds[1].prefix + p.name, p.shape);
    const Tensor second = file.require(kKinds[2].prefix + p.name, p.shape);
    for (const Piece& owned : optimizer.owned()) {
      for_each_run_within(p, owned.flat_begin, owned.flat_begin + owned.count,
                          [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                            const std::int64_t at = owned.state_begin + flat - owned.flat_begin;
                            read_elements(first, logical, count, optimizer.first_moment() + at);
                            read_elements(second, logical, count, optimizer.second_moment() + at);
                          });
    }
  }
}

}  // namespace

template <typename T>
void save_checkpoint(const std::string& directory, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel) {
  using W = kernels::Wide<T>;
  const std::string partial = step_path(directory, state.step) + std::string(kPartial);
  Output model(partial + "/model.safetensors", state.config, dtype_of_v<W>, true);
  Output moments(partial + "/optimizer.safetensors", state.config, dtype_of_v<W>, false);
  const bool first_rank = parallel.rank() == 0;
  agree(parallel.world(), [&] {
    if (!first_rank) return;
    fs::remove_all(partial);
    fs::create_directories(partial);
    model.create();
    moments.create();
  });

  std::vector<std::uint64_t> parts(whole_parameters(state.config).size() * kKindCount, 0);
  agree(parallel.world(), [&] {
    model.open();
    moments.open();
    const auto put = [&](const Parameter& p, std::size_t kind, std::int64_t logical,
                         const W* source, std::int64_t count) {
      constexpr std::int64_t kSize = sizeof(W);
      Output& output = kKinds[kind].in_model_file ? model : moments;
      output.write(row_of(p, kind), logical * kSize, source, count * kSize);
      parts[row_of(p, kind)] += fingerprint(source, sizeof(W), logical, count);
    };
    for_each_own_run(stage, optimizer, parallel,
                     [&](const Parameter& p, const Piece& piece, std::int64_t logical) {
                       const std::int64_t at = piece.state_begin;
                       put(p, 0, logical, optimizer.masters(piece), piece.count);
                       put(p, 1, logical, optimizer.first_moment() + at, piece.count);
                       put(p, 2, logical, optimizer.second_moment() + at, piece.count);
                     });
    model.close();
    moments.close();
  });
  sum_fingerprints(parallel, parts);

  agree(parallel.world(), [&] {
    if (!first_rank) return;
    TrainingState complete = state;
    for (const Parameter& p : whole_parameters(state.config)) {
      for (std::size_t kind = 0; kind < kKindCount; ++kind)
        complete.fingerprints[kKinds[kind].prefix + p.name] = parts[row_of(p, kind)];
    }
    write_text(partial + "/state.json", print_state(complete));
    publish_checkpoint(directory, partial, state.step);
  });
}

template <typename T>
void load_checkpoint(const CheckpointPaths& paths, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel) {
  std::vector<std::uint64_t> parts(whole_parameters(state.config).size() * kKindCount, 0);
  agree(parallel.world(), [&] {
    const SafetensorsFile model(paths.model);
    const SafetensorsFile moments(paths.optimizer);
    read_weights(model, stage);
    read_masters(model, stage, optimizer);
    read_moments(moments, stage, optimizer);
    for_each_own_run(stage, optimizer, parallel,
                     [&](const Parameter& p, const Piece& piece, std::int64_t logical) {
                       for (std::size_t kind = 0; kind < kKindCount; ++kind) {
                         const SafetensorsFile& file = kKinds[kind].in_model_file ? model : moments;
                         parts[row_of(p, kind)] +=
                             fingerprint_of(file.require(kKinds[kind].prefix + p.name, p.shape),
                                            logical, piece.count);
                       }
                     });
  });
  sum_fingerprints(parallel, parts);
  check_fingerprints(state, paths.state, parts, kKindCount);
}

void check_weights(const SafetensorsFile& file, const CheckpointPaths& paths,
                   const TrainingState& state) {
  const std::vector<Parameter> parameters = whole_parameters(state.config);
  std::vector<std::uint64_t> parts(parameters.size() * kKindCount, 0);
  for (const Parameter& p : parameters) {
    const Tensor tensor = file.require(p.name, p.shape);
    parts[row_of(p, 0)] = fingerprint_of(tensor, 0, tensor.count());
  }
  check_fingerprints(state, paths.state, parts, 1);
}

template <typename T>
void load_model(const CheckpointPaths& paths, const TrainingState& state, Stage<T>& stage) {
  const SafetensorsFile file(paths.model);
  read_weights(file, stage);
  check_weights(file, paths, state);
}

namespace {

// Calls body(file) with the file of weights, whichever of the two kinds it is.
template <typename Body>
void open_weights(const std::string& path, Body&& body) {
  if (is_llmc_model(MappedFile(path).bytes())) {
    LlmcModelFile file(path);
    body(file);
  } else {
    const SafetensorsFile file(path);
    body(file);
  }
}

}  // namespace

template <typename T>
void load_weights(const std::string& path, Stage<T>& stage) {
  open_weights(path, [&](auto& file) { read_weights(file, stage); });
}

template <typename T>
void load_weights(const std::string& path, Stage<T>& stage, Optimizer<T>& optimizer) {
  open_weights(path, [&](auto& file) {
    read_weights(file, stage);
    read_masters(file, stage, optimizer);
  });
}

#define SINEW_INSTANTIATE(T)                                                                \
  template void save_checkpoint<T>(const std::string&, const TrainingState&, Stage<T>&,     \
                                   Optimizer<T>&, Parallel&);                               \
  template void load_checkpoint<T>(const CheckpointPaths&, const TrainingState&, Stage<T>&, \
                                   Optimizer<T>&, Parallel&);                               \
  template void load_model<T>(const CheckpointPaths&, const TrainingState&, Stage<T>&);     \
  template void load_weights<T>(const std::string&, Stage<T>&);                             \
  template void load_weights<T>(const std::string&, Stage<T>&, Optimizer<T>&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
