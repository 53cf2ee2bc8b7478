#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "model/quote.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

using nlohmann::json;

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array kTypeNames = {
    TypeName{"F32", DType::kF32},      TypeName{"F64", DType::kF64},
    TypeName{"BF16", DType::kBf16},    TypeName{"F16", DType::kF16},
    TypeName{"I32", DType::kI32},      TypeName{"I64", DType::kI64},
    TypeName{"U8", DType::kU8},        TypeName{"I8", DType::kI8},
    TypeName{"U32", DType::kU32},      TypeName{"U64", DType::kU64},
    TypeName{"F8_E4M3", DType::kE4m3}, TypeName{"F8_E5M2", DType::kE5m2},
};

// Types of the format that no tensor of a model has here.
struct ForeignType {
  std::string_view name;
  std::int64_t size_bytes;
};
constexpr std::array kForeignTypes = {ForeignType{"BOOL", 1}, ForeignType{"I16", 2},
                                      ForeignType{"U16", 2}};

constexpr std::int64_t kMaxHeaderBytes = std::int64_t{100} << 20;  // the format's own limit
constexpr std::int64_t kMaxCount = std::int64_t{1} << 48;  // keeps byte counts within 64 bits

class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("safetensors file '{}': {}", where_, what));
  }

  std::optional<std::int64_t> whole(const json& value) const {
    if (!value.is_number_unsigned()) return std::nullopt;
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(kMaxCount)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }

  // The format's rule: the tensors cover the data part without holes or overlaps.
  void check_cover(const SafetensorsIndex& index) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const auto& [name, entry] : index.tensors) ranges.emplace_back(entry.begin, entry.end);
    std::sort(ranges.begin(), ranges.end());
    std::int64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin != at) fail(fmt::format("its tensors leave a hole or overlap at data byte {}", at));
      at = end;
    }
    const std::int64_t data_bytes = index.file_bytes - index.data_begin;
    if (at != data_bytes) {
      fail(fmt::format("its tensors end at data byte {}, the file has {}", at, data_bytes));
    }
  }

  TensorEntry entry(const std::string& name, const json& value, std::int64_t data_bytes) const {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      fail(fmt::format("tensor {} lacks dtype, shape or data_offsets", quoted(name)));
    }
    TensorEntry entry;
    const std::int64_t element_bytes = set_type(name, value["dtype"], entry);
    if (!value["shape"].is_array()) fail(fmt::format("tensor {}: shape is no list", quoted(name)));
    std::int64_t count = 1;
    for (const json& extent : value["shape"]) {
      const auto number = whole(extent);
      if (!number || (*number != 0 && count > kMaxCount / *number)) {
        fail(fmt::format("tensor {}: shape {} is out of range", quoted(name),
                         value["shape"].dump()));
      }
      count *= *number;
      entry.shape.push_back(*number);
    }
    const json& offsets = value["data_offsets"];
    const auto begin = offsets.is_array() && offsets.size() == 2 ? whole(offsets[0]) : std::nullopt;
    const auto end = begin ? whole(offsets[1]) : std::nullopt;
    if (!end || *begin > *end || *end > data_bytes) {
      fail(fmt::format("tensor {}: data_offsets {} lie outside the {} data bytes", quoted(name),
                       offsets.dump(), data_bytes));
    }
    entry.begin = *begin;
    entry.end = *end;
    if (entry.end - entry.begin != count * element_bytes) {
      fail(fmt::format("tensor {}: {} bytes for shape {} of {}", quoted(name),
                       entry.end - entry.begin, value["shape"].dump(),
                       entry.foreign.empty() ? name_of(entry.dtype) : entry.foreign));
    }
    return entry;
  }

 private:
  // Returns the bytes of an element.
  std::int64_t set_type(const std::string& tensor, const json& value, TensorEntry& entry) const {
    const std::string given = value.is_string() ? value.get<std::string>() : "";
    std::string legal;
    for (const TypeName& row : kTypeNames) {
      if (given == row.name) {
        entry.dtype = row.dtype;
        return static_cast<std::int64_t>(size_of(row.dtype));
      }
      legal += legal.empty() ? "" : ", ";
      legal += row.name;
    }
    for (const ForeignType& row : kForeignTypes) {
      if (given == row.name) {
        entry.foreign = row.name;
        return row.size_bytes;
      }
      legal += fmt::format(", {}", row.name);
    }
    fail(fmt::format("tensor {}: dtype {}; legal values: {}", quoted(tensor),
                     value.dump(-1, ' ', false, json::error_handler_t::replace), legal));
  }

  const std::string& where_;
};

}  // namespace

std::int64_t TensorEntry::count() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

SafetensorsIndex parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  const Reader reader(where);
  SafetensorsIndex index;
  index.file_bytes = static_cast<std::int64_t>(file.size());
  std::uint64_t length = 0;
  if (file.size() < sizeof length)
    reader.fail(fmt::format("{} bytes, shorter than the length of its header", file.size()));
  std::memcpy(&length, file.data(), sizeof length);
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes) ||
      length > file.size() - sizeof length) {
    reader.fail(fmt::format("header of {} bytes in a file of {}", length, file.size()));
  }
  index.data_begin = static_cast<std::int64_t>(sizeof length + length);
  const char* text = reinterpret_cast<const char*>(file.data()) + sizeof length;
  const json document = json::parse(text, text + length, nullptr, false);
  if (document.is_discarded() || !document.is_object()) reader.fail("the header is no JSON object");
  for (const auto& [name, value] : document.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) reader.fail("__metadata__ is no object");
      for (const auto& [key, text_value] : value.items()) {
        if (text_value.is_string()) index.metadata[key] = text_value.get<std::string>();
      }
      continue;
    }
    index.tensors[name] = reader.entry(name, value, index.file_bytes - index.data_begin);
  }
  reader.check_cover(index);
  return index;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(path), index_(parse_safetensors(file_.bytes(), path)) {}

Tensor SafetensorsFile::at(const std::string& name) const {
  const auto found = index_.tensors.find(name);
  if (found == index_.tensors.end())
    throw UsageError(fmt::format("'{}' has no tensor '{}'", path_, name));
  const TensorEntry& entry = found->second;
  if (!entry.foreign.empty()) {
    throw UsageError(fmt::format("'{}': tensor '{}' is {}; legal values: f32, f64, bf16, f16",
                                 path_, name, entry.foreign));
  }
  return {file_.bytes().data() + index_.data_begin + entry.begin, entry.dtype, entry.shape};
}

Tensor SafetensorsFile::require(const std::string& name,
                                const std::vector<std::int64_t>& shape) const {
  const std::string prefixed = "transformer." + name;
  Tensor tensor = at(index_.tensors.contains(prefixed) ? prefixed : name);
  if (tensor.shape != shape) {
    throw UsageError(fmt::format("'{}': tensor '{}' has shape [{}]; the model needs [{}]", path_,
                                 name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  }
  if (!info(tensor.dtype).is_float) {
    throw UsageError(fmt::format("'{}': tensor '{}' is {}; legal values: f32, f64, bf16, f16",
                                 path_, name, name_of(tensor.dtype)));
  }
  return tensor;
}

std::string make_safetensors_header(std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata) {
  json document = json::object();
  if (!metadata.empty()) document["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (NamedTensor& tensor : tensors) {
    TensorEntry& entry = tensor.entry;
    entry.begin = offset;
    offset += entry.count() * static_cast<std::int64_t>(size_of(entry.dtype));
    entry.end = offset;
    std::string_view type;
    for (const TypeName& row : kTypeNames) {
      if (row.dtype == entry.dtype) type = row.name;
    }
    document[tensor.name] = {
        {"dtype", type}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = document.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts aligned
  std::string header(sizeof(std::uint64_t), '\0');
  const std::uint64_t length = text.size();
  std::memcpy(header.data(), &length, sizeof length);
  return header + text;
}

}  // namespace sinew::model
