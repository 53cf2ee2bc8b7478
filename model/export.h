// Export: a checkpoint's weights as one file that other programs read: Hugging Face's safetensors
// or llm.c's model file.
//
// Threads: one process alone.
#pragma once

#include <string>

#include "model/checkpoint.h"
#include "sched/base/dtype.h"

namespace sinew::model {

// Throws UsageError for an unknown ending or type; looks at no file.
void check_export(const std::string& path, DType dtype);

// Writes the weights to `path` in the format its ending names (.safetensors, or .bin for llm.c) as
// f32, bf16 or (safetensors) f64; values are rounded to nearest where the type is narrower than the
// checkpoint's. Hugging Face's names and shapes; a tied head is not written a second time.
// Throws UsageError for an unknown ending or type, a model that llm.c's format does not have, and a
// checkpoint whose weights do not have their fingerprints, and a path that is one of the
// checkpoint's own files; Error when the file cannot be written, before the first byte of it where
// the disk has too little room.
// The file appears whole or not at all.
void export_weights(const Checkpoint& checkpoint, const std::string& path, DType dtype);

}  // namespace sinew::model
