// Checkpoint: a directory of logical tensors that any layout opens without conversion.
//
//   DIR/step-00000100/model.safetensors      weights, under their Hugging Face names
//   DIR/step-00000100/optimizer.safetensors  first_moment.NAME and second_moment.NAME
//   DIR/step-00000100/state.json             step, optimizer steps taken, data position, seed,
//   model, dtype
//
// Written aside (step-N.partial) by all ranks, each its own slices, then renamed by rank 0: a kill
// at any moment leaves the previous checkpoint whole. The newest complete one is resumed from;
// `kKept` are kept.
//
// Threads: one rank, one thread. Collective.
#pragma once

#include <cstdint>
#include <string>

#include "model/optimizer.h"
#include "model/parallel.h"
#include "model/stage.h"

namespace sinew::model {

struct TrainingState {
  std::int64_t step = 0;             // steps done
  std::int64_t optimizer_steps = 0;  // of them not skipped
  std::int64_t sequences = 0;        // sequences of the data order consumed
  std::uint64_t seed = 0;
  Config config;
  std::string dtype;
};

inline constexpr int kKept = 2;

template <typename T>
void save_checkpoint(const std::string& directory, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel);

// The newest complete checkpoint in `directory` (or `directory` itself when it is one). Throws
// UsageError when there is none or it is damaged.
struct CheckpointPaths {
  std::string model;
  std::string optimizer;
  std::string state;
};
[[nodiscard]] CheckpointPaths find_checkpoint(const std::string& directory);
[[nodiscard]] TrainingState read_state(const CheckpointPaths& paths);
[[nodiscard]] TrainingState parse_state(std::string_view json_text, const std::string& where);

template <typename T>
void load_optimizer(const CheckpointPaths& paths, Stage<T>& stage, Optimizer<T>& optimizer);

// Reads this rank's slices of every parameter from a safetensors file; names may carry the prefix
// "transformer.". F32, F64, BF16 and F16 are converted. Throws UsageError naming the missing tensor
// or the shape found and needed.
template <typename T>
void load_weights(const std::string& path, Stage<T>& stage);

// Initial weights: value = f(seed, logical index), so that every layout starts from the same model.
template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage);

}  // namespace sinew::model
