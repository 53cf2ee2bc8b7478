#include "model/checkpoint.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "kernels/element.h"
#include "model/agree.h"
#include "model/checkpoint_parts.h"
#include "model/safetensors.h"
#include "model/weights_file.h"
#include "sched/base/check.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

void check_fingerprints(const TrainingState& state, const std::string& where,
                        const std::vector<std::uint64_t>& found, std::size_t kinds) {
  for (const Parameter& p : whole_parameters(state.config)) {
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const std::string name = kStateKinds[kind].prefix + p.name;
      const auto expected = state.fingerprints.find(name);
      if (expected == state.fingerprints.end())
        throw UsageError(fmt::format("checkpoint '{}' has no fingerprint of '{}'", where, name));
      if (expected->second != found[state_row(p, kind)]) {
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

// File: SafetensorsFile or WeightsFile.
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

// The first step would find them, too, and could not say which file they came from.
template <typename T>
void require_finite(const std::string& path, Stage<T>& stage) {
  for (const Parameter& p : stage.parameters()) {
    for (const Piece& held : stage.units().held()) {
      const T* values = stage.weights() + held.weight_begin;
      for_each_run_within(p, held.flat_begin, held.flat_begin + held.count,
                          [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                            for (std::int64_t i = 0; i < count; ++i) {
                              const auto value = static_cast<double>(
                                  kernels::widen(values[flat - held.flat_begin + i]));
                              if (std::isfinite(value)) continue;
                              throw UsageError(fmt::format(
                                  "'{}': element {} of tensor '{}' is {} in {}; legal are finite "
                                  "weights",
                                  path, logical + i, p.name, value, name_of(dtype_of_v<T>)));
                            }
                          });
    }
  }
}

// Of bf16 weights the masters, which the files hold.
template <typename T, typename File>
void read_masters(File& file, const Stage<T>& stage, Optimizer<T>& optimizer) {
  if constexpr (Optimizer<T>::kNarrow) {
    if (!optimizer.updates_wide()) return;
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
    const Tensor first = file.require(kStateKinds[1].prefix + p.name, p.shape);
    const Tensor second = file.require(kStateKinds[2].prefix + p.name, p.shape);
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
void load_checkpoint(const CheckpointPaths& paths, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel) {
  std::vector<std::uint64_t> parts(whole_parameters(state.config).size() * kStateKindCount, 0);
  agree(parallel.world(), [&] {
    const SafetensorsFile model(paths.model);
    const SafetensorsFile moments(paths.optimizer);
    read_weights(model, stage);
    read_masters(model, stage, optimizer);
    read_moments(moments, stage, optimizer);
    for_each_own_run(
        stage, optimizer, parallel,
        [&](const Parameter& p, const Piece& piece, std::int64_t logical) {
          for (std::size_t kind = 0; kind < kStateKindCount; ++kind) {
            const SafetensorsFile& file = kStateKinds[kind].in_model_file ? model : moments;
            parts[state_row(p, kind)] += fingerprint_of(
                file.require(kStateKinds[kind].prefix + p.name, p.shape), logical, piece.count);
          }
        });
  });
  sum_fingerprints(parallel, parts);
  check_fingerprints(state, paths.state, parts, kStateKindCount);
}

void check_weights(const SafetensorsFile& file, const CheckpointPaths& paths,
                   const TrainingState& state) {
  const std::vector<Parameter> parameters = whole_parameters(state.config);
  std::vector<std::uint64_t> parts(parameters.size() * kStateKindCount, 0);
  for (const Parameter& p : parameters) {
    const Tensor tensor = file.require(p.name, p.shape);
    parts[state_row(p, 0)] = fingerprint_of(tensor, 0, tensor.count());
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

WeightsFile open_weights(const std::string& path, const Config& config) {
  WeightsFile file(path);
  file.check_nothing_else(whole_parameters(config));
  return file;
}

}  // namespace

template <typename T>
void load_weights(const std::string& path, const Config& config, Stage<T>& stage) {
  WeightsFile file = open_weights(path, config);
  read_weights(file, stage);
  require_finite(path, stage);
}

template <typename T>
void load_weights(const std::string& path, const Config& config, Stage<T>& stage,
                  Optimizer<T>& optimizer) {
  WeightsFile file = open_weights(path, config);
  read_weights(file, stage);
  require_finite(path, stage);
  read_masters(file, stage, optimizer);
}

#define SINEW_INSTANTIATE(T)                                                                \
  template void load_checkpoint<T>(const CheckpointPaths&, const TrainingState&, Stage<T>&, \
                                   Optimizer<T>&, Parallel&);                               \
  template void load_model<T>(const CheckpointPaths&, const TrainingState&, Stage<T>&);     \
  template void load_weights<T>(const std::string&, const Config&, Stage<T>&);              \
  template void load_weights<T>(const std::string&, const Config&, Stage<T>&, Optimizer<T>&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
SINEW_INSTANTIATE(bf16)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
