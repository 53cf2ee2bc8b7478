// Safetensors: Hugging Face's tensor file: u64 little-endian header length, a JSON object {name:
// {dtype, shape, data_offsets}}, then the raw data, row-major.
//
// Never does: know models or layouts (checkpoint.h does). Threads: const objects may be shared.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/mapped_file.h"
#include "model/tensor.h"
#include "sched/base/dtype.h"

namespace sinew::model {

struct TensorEntry {
  DType dtype = DType::kF32;
  // The name of a type that is none of ours, such as BOOL: such a tensor is no weight, and may be
  // there. Empty otherwise.
  std::string foreign{};
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // bytes from the start of the data part
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t count() const;
};

struct SafetensorsIndex {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // bytes from the start of the file
  std::int64_t file_bytes = 0;
};

// Checks everything a reader relies on: lengths, types, shapes, offsets inside the file, sizes that
// agree with shapes. Throws UsageError in one line; any bytes are safe to pass.
[[nodiscard]] SafetensorsIndex parse_safetensors(std::span<const std::byte> file,
                                                 const std::string& where);

// The header bytes (length prefix included) of a file with these tensors in this order, back to
// back; fills in their offsets and the index's data_begin and file_bytes.
struct NamedTensor {
  std::string name;
  TensorEntry entry;
};
[[nodiscard]] std::string make_safetensors_header(
    std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata);

// A file opened for reading.
class SafetensorsFile {
 public:
  // Throws UsageError as MappedFile and parse_safetensors do.
  explicit SafetensorsFile(const std::string& path);

  [[nodiscard]] const SafetensorsIndex& index() const { return index_; }
  // Throws UsageError naming the tensor when it is missing.
  [[nodiscard]] Tensor at(const std::string& name) const;
  // The same, and the shape and a float type are checked too. `name` may be stored with the prefix
  // "transformer." that some of Hugging Face's files have.
  [[nodiscard]] Tensor require(const std::string& name,
                               const std::vector<std::int64_t>& shape) const;

 private:
  std::string path_;
  MappedFile file_;
  SafetensorsIndex index_;
};

}  // namespace sinew::model
