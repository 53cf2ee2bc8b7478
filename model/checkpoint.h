// Checkpoint: a directory of logical tensors that any layout opens without conversion.
//
//   DIR/step-00000100/model.safetensors      weights, under their Hugging Face names; of bf16
//   weights
//                                            the f32 masters, or they widened where they have none
//   DIR/step-00000100/optimizer.safetensors  first_moment.NAME and second_moment.NAME
//   DIR/step-00000100/state.json             step, optimizer steps taken, data position, seed,
//                                            model, dtype, a fingerprint of every tensor,
//                                            and a checksum of all that
//   DIR/latest                               the name of the newest one
//
// Written aside (step-N.partial) by all ranks, each its own slices, then put in place by one rename
// on rank 0: a kill at any moment leaves a complete checkpoint to resume from. All ranks must see
// the same directory.
//
// checkpoint_writer.h writes one beside the training. Threads: one rank, one thread. save and load
// are collective.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "model/data.h"
#include "model/optimizer.h"
#include "model/parallel.h"
#include "model/stage.h"

namespace sinew::model {

class SafetensorsFile;

struct TrainingState {
  std::int64_t step = 0;             // steps done
  std::int64_t optimizer_steps = 0;  // of them not skipped
  std::int64_t sequences = 0;        // sequences of the data order consumed
  std::uint64_t seed = 0;
  Config config;
  std::string dtype;
  DataOrder data;                                     // what `sequences` counts in
  std::map<std::string, std::uint64_t> fingerprints;  // tensor.h, by name in the files
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

struct CheckpointPaths {
  std::string model;
  std::string optimizer;
  std::string state;
};

// Throws Error on every rank when any cannot write; the checkpoints before stay as they are.
// keep_last: once the new one is the newest, all but so many of the directory are removed; 0: none.
template <typename T>
void save_checkpoint(const std::string& directory, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel, std::int64_t keep_last = 0);

// Resuming needs every file; sampling and export need no moments: the file may be gone.
enum class CheckpointUse : std::uint8_t { kResume, kWeights };

// The newest complete checkpoint in `directory`: the one that `latest` names, or without that file
// the highest step; or `directory` itself when it is one. Throws UsageError when there is none, and
// when `latest` is damaged.
[[nodiscard]] CheckpointPaths find_checkpoint(const std::string& directory,
                                              CheckpointUse use = CheckpointUse::kResume);
// Of the checkpoints in `directory`; none where there is none.
[[nodiscard]] std::optional<std::int64_t> highest_step(const std::string& directory);
// Refuses, as parse_state, also a text that is not the one written, or of another folder's step.
[[nodiscard]] TrainingState read_state(const CheckpointPaths& paths);
// Both at once.
struct Checkpoint {
  CheckpointPaths paths;
  TrainingState state;
};
[[nodiscard]] Checkpoint open_checkpoint(const std::string& directory, CheckpointUse use);
// Throws UsageError in one line; any text is safe to pass.
[[nodiscard]] TrainingState parse_state(std::string_view json_text, const std::string& where);
[[nodiscard]] std::string print_state(const TrainingState& state);

// This rank's slices of weights and moments. Throws UsageError on every rank when a file is
// damaged: its form, a tensor's shape, or its fingerprint.
template <typename T>
void load_checkpoint(const CheckpointPaths& paths, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel);

// The weights alone, for a stage that is the whole model on one rank; checked as above. What
// sampling and export read: the file of moments is not opened, and damage in it changes nothing of
// theirs.
template <typename T>
void load_model(const CheckpointPaths& paths, const TrainingState& state, Stage<T>& stage);

// Every weight of `file`, the checkpoint's paths.model, has its fingerprint, else UsageError.
void check_weights(const SafetensorsFile& file, const CheckpointPaths& paths,
                   const TrainingState& state);

// This rank's slices of every parameter from what weights_file.h reads; f32, f64, bf16 and f16 are
// converted. Not collective. Throws UsageError naming the missing tensor, the shape found and
// needed, a tensor that the model does not have, or an element that is not finite in T.
template <typename T>
void load_weights(const std::string& path, const Config& config, Stage<T>& stage);
// And the masters of bf16 weights.
template <typename T>
void load_weights(const std::string& path, const Config& config, Stage<T>& stage,
                  Optimizer<T>& optimizer);

// Used by save_checkpoint, on one rank: makes the complete directory `partial` the checkpoint
// `step` of `directory` and the newest.
void publish_checkpoint(const std::string& directory, const std::string& partial,
                        std::int64_t step);
// Of the checkpoints in `directory` up to step `newest` keeps the last `keep`, `newest` among them,
// and removes those before; of no other run's later steps, nor of folders that hold anything else
// than a checkpoint's files. A kill leaves each whole or unfinished. Throws Error when one cannot
// be removed.
void remove_older(const std::string& directory, std::int64_t newest, std::int64_t keep);
// Removes what a killed run left in a directory that nothing else writes to: checkpoints that were
// never finished, and texts without their names. Only files of the names that are written here.
void remove_unfinished(const std::string& directory);
// DIR/step-00000100
[[nodiscard]] std::string step_path(const std::string& directory, std::int64_t step);

}  // namespace sinew::model
