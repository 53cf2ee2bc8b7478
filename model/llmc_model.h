// llm.c's model files: GPT-2 weights in one .bin.
//
//   256 int32   magic 20240326, version (3: f32, 5: bf16), longest sequence, vocabulary, layers,
//               heads, channels, padded vocabulary; the rest 0
//   tensors     wte [Vp, C], wpe [T, C], then each of a layer's twelve tensors for all layers, then
//               the final norm's two, row-major. Matrices are [out, in], the other way round than
//               in Hugging Face's files. Rows of wte from the vocabulary on are padding: never
//               read, written as 0
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "model/tensor.h"

namespace sinew::model {

struct LlmcHeader {
  Config config;  // without a name
  DType dtype = DType::kF32;
  std::int64_t padded_vocabulary = 0;
};

// Whether a file begins with llm.c's magic number for models.
[[nodiscard]] bool is_llmc_model(std::span<const std::byte> file);
// The header, checked against itself and the file's size. Throws UsageError in one line; any bytes
// are safe to pass.
[[nodiscard]] LlmcHeader parse_llmc_model(std::span<const std::byte> file,
                                          const std::string& where);

class LlmcModelFile {
 public:
  explicit LlmcModelFile(const std::string& path);

  [[nodiscard]] const LlmcHeader& header() const { return header_; }
  // The tensor under its Hugging Face name and in that shape, else UsageError; valid until the next
  // call (a matrix is turned round into a buffer).
  [[nodiscard]] Tensor require(const std::string& name, const std::vector<std::int64_t>& shape);

 private:
  std::string path_;
  MappedFile file_;
  LlmcHeader header_;
  std::vector<std::byte> turned_;
};

// Throws UsageError for a model that the format does not have.
void check_llmc_model(const Config& config);

// Writes a GPT-2 of this shape, whose tensors `source` has under their Hugging Face names, as f32
// or bf16 (rounded to nearest). The vocabulary is padded to a multiple of 128. Throws UsageError
// as check_llmc_model does; whether `out` took the bytes is the caller's to ask.
void write_llmc_model(std::ostream& out, const Config& config, DType dtype,
                      const SafetensorsFile& source);

}  // namespace sinew::model
