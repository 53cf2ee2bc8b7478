#include "model/llmc_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <ostream>

#include "kernels/element.h"
#include "model/quote.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"

namespace sinew::model {

namespace {

constexpr std::size_t kHeaderNumbers = 256;
constexpr std::size_t kHeaderBytes = kHeaderNumbers * sizeof(std::int32_t);
constexpr std::int32_t kMagic = 20240326;
constexpr std::int32_t kVersionF32 = 3;
constexpr std::int32_t kVersionBf16 = 5;
constexpr std::int64_t kVocabularyMultiple = 128;

// A tensor of the file: in Hugging Face's names and terms, with rows and columns as stored.
struct FileTensor {
  std::string_view name;  // of a layer's: what follows "h.0."
  bool per_layer = true;
  bool turned = false;  // a matrix stored [out, in]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  [[nodiscard]] std::int64_t count() const { return rows * columns; }
};

std::array<FileTensor, 16> file_tensors(const Config& config, std::int64_t padded_vocabulary) {
  const std::int64_t c = config.channels;
  return {{
      {"wte.weight", false, false, padded_vocabulary, c},
      {"wpe.weight", false, false, config.max_time, c},
      {"ln_1.weight", true, false, 1, c},
      {"ln_1.bias", true, false, 1, c},
      {"attn.c_attn.weight", true, true, 3 * c, c},
      {"attn.c_attn.bias", true, false, 1, 3 * c},
      {"attn.c_proj.weight", true, true, c, c},
      {"attn.c_proj.bias", true, false, 1, c},
      {"ln_2.weight", true, false, 1, c},
      {"ln_2.bias", true, false, 1, c},
      {"mlp.c_fc.weight", true, true, 4 * c, c},
      {"mlp.c_fc.bias", true, false, 1, 4 * c},
      {"mlp.c_proj.weight", true, true, c, 4 * c},
      {"mlp.c_proj.bias", true, false, 1, c},
      {"ln_f.weight", false, false, 1, c},
      {"ln_f.bias", false, false, 1, c},
  }};
}

std::int64_t elements_of(const Config& config, std::int64_t padded_vocabulary) {
  std::int64_t count = 0;
  for (const FileTensor& t : file_tensors(config, padded_vocabulary))
    count += t.count() * (t.per_layer ? config.layers : 1);
  return count;
}

std::array<std::int32_t, kHeaderNumbers> numbers_of(std::span<const std::byte> file) {
  std::array<std::int32_t, kHeaderNumbers> numbers{};
  std::memcpy(numbers.data(), file.data(), std::min(file.size(), kHeaderBytes));
  return numbers;
}

// "h.3.ln_1.weight" is layer 3's ln_1.weight; other names have no layer.
struct LayerName {
  std::optional<std::int64_t> layer;
  std::string_view rest;
};
LayerName layer_name(std::string_view name) {
  if (!name.starts_with("h.")) return {std::nullopt, name};
  const std::size_t dot = name.find('.', 2);
  if (dot == std::string_view::npos) return {std::nullopt, name};
  std::int64_t layer = 0;
  for (const char digit : name.substr(2, dot - 2)) layer = layer * 10 + (digit - '0');
  return {layer, name.substr(dot + 1)};
}

// target: [columns, rows] = source: [rows, columns], of elements of any size.
void turn(const std::byte* source, std::int64_t rows, std::int64_t columns, std::size_t size,
          std::byte* target) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column)
      std::memcpy(target + static_cast<std::size_t>(column * rows + row) * size,
                  source + static_cast<std::size_t>(row * columns + column) * size, size);
  }
}

}  // namespace

bool is_llmc_model(std::span<const std::byte> file) {
  return file.size() >= sizeof kMagic && numbers_of(file)[0] == kMagic;
}

LlmcHeader parse_llmc_model(std::span<const std::byte> file, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw UsageError(fmt::format("model file {}: {}", model::quoted(where), what));
  };
  const auto numbers = numbers_of(file);
  if (numbers[0] != kMagic)
    fail(fmt::format("magic {} is not that of llm.c's models, {}", numbers[0], kMagic));
  if (file.size() < kHeaderBytes)
    fail(fmt::format("{} bytes, shorter than llm.c's header of {}", file.size(), kHeaderBytes));
  if (numbers[1] != kVersionF32 && numbers[1] != kVersionBf16)
    fail(fmt::format("llm.c version {}; legal values: 3 (f32), 5 (bf16)", numbers[1]));
  LlmcHeader header;
  header.dtype = numbers[1] == kVersionF32 ? DType::kF32 : DType::kBf16;
  header.config.max_time = numbers[2];
  header.config.vocabulary = numbers[3];
  header.config.layers = numbers[4];
  header.config.heads = numbers[5];
  header.config.channels = numbers[6];
  header.padded_vocabulary = numbers[7];
  header.config.name = where;
  validate(header.config);
  if (header.padded_vocabulary < header.config.vocabulary ||
      header.padded_vocabulary - header.config.vocabulary > header.config.vocabulary + 65536)
    fail(fmt::format("a vocabulary of {} padded to {}", header.config.vocabulary,
                     header.padded_vocabulary));
  const std::int64_t count = elements_of(header.config, header.padded_vocabulary);
  const auto expected = static_cast<std::int64_t>(kHeaderBytes) +
                        count * static_cast<std::int64_t>(size_of(header.dtype));
  if (static_cast<std::int64_t>(file.size()) != expected)
    fail(fmt::format("the header promises {} parameters ({} bytes), the file has {} bytes", count,
                     expected, file.size()));
  return header;
}

LlmcModelFile::LlmcModelFile(const std::string& path)
    : path_(path), file_(path), header_(parse_llmc_model(file_.bytes(), path)) {}

Tensor LlmcModelFile::require(const std::string& name, const std::vector<std::int64_t>& shape) {
  const LayerName wanted = layer_name(name);
  const std::size_t size = size_of(header_.dtype);
  const std::byte* at = file_.bytes().data() + kHeaderBytes;
  for (const FileTensor& t : file_tensors(header_.config, header_.padded_vocabulary)) {
    const std::int64_t copies = t.per_layer ? header_.config.layers : 1;
    const bool found = t.name == wanted.rest && t.per_layer == wanted.layer.has_value() &&
                       wanted.layer.value_or(0) < copies;
    if (!found) {
      at += static_cast<std::size_t>(t.count() * copies) * size;
      continue;
    }
    at += static_cast<std::size_t>(t.count() * wanted.layer.value_or(0)) * size;
    std::vector<std::int64_t> stored{t.rows, t.columns};
    if (t.turned) std::swap(stored[0], stored[1]);
    if (t.name == "wte.weight") stored[0] = header_.config.vocabulary;
    if (t.rows == 1) stored = {t.columns};
    if (stored != shape)
      throw UsageError(fmt::format("model file {}: tensor {} is [{}], the model needs [{}]",
                                   model::quoted(path_), name, fmt::join(stored, ", "),
                                   fmt::join(shape, ", ")));
    if (t.turned) {
      turned_.resize(static_cast<std::size_t>(t.count()) * size);
      turn(at, t.rows, t.columns, size, turned_.data());
      at = turned_.data();
    }
    return {at, header_.dtype, stored};
  }
  throw UsageError(fmt::format("model file {}: there is no tensor {}", model::quoted(path_), name));
}

namespace {

// Of f32 values what the file holds of them.
std::string encoded(const std::vector<float>& values, DType dtype) {
  if (dtype == DType::kF32)
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  std::vector<bf16> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(), kernels::narrow<bf16>);
  return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(bf16)};
}

// One tensor as the file stores it.
std::string stored_tensor(const FileTensor& t, const std::string& name, const Config& config,
                          DType dtype, const SafetensorsFile& source) {
  const std::int64_t rows = t.name == "wte.weight" ? config.vocabulary : t.rows;
  const std::vector<std::int64_t> shape = t.rows == 1 ? std::vector{t.columns}
                                          : t.turned  ? std::vector{t.columns, rows}
                                                      : std::vector{rows, t.columns};
  const Tensor tensor = source.require(name, shape);
  std::vector<float> values(static_cast<std::size_t>(t.count()), 0.0F);
  read_elements(tensor, 0, tensor.count(), values.data());
  if (t.turned) {
    const std::vector<float> turned = values;
    turn(reinterpret_cast<const std::byte*>(turned.data()), t.columns, t.rows, sizeof(float),
         reinterpret_cast<std::byte*>(values.data()));
  }
  return encoded(values, dtype);
}

}  // namespace

void check_llmc_model(const Config& config) {
  if (config.is_llama() || !config.tied || config.norm_epsilon != Config().norm_epsilon) {
    throw UsageError(
        fmt::format("model {}: llm.c's files hold GPT-2 with a tied head and norm_epsilon 1e-5",
                    model::quoted(config.name)));
  }
}

void write_llmc_model(std::ostream& out, const Config& config, DType dtype,
                      const SafetensorsFile& source) {
  check_llmc_model(config);
  CHECK(dtype == DType::kF32 || dtype == DType::kBf16);
  const std::int64_t padded = round_up(config.vocabulary, kVocabularyMultiple);
  std::array<std::int32_t, kHeaderNumbers> header{};
  const std::array<std::int64_t, 8> numbers = {
      kMagic,          dtype == DType::kF32 ? kVersionF32 : kVersionBf16,
      config.max_time, config.vocabulary,
      config.layers,   config.heads,
      config.channels, padded};
  for (std::size_t i = 0; i < numbers.size(); ++i)
    header[i] = static_cast<std::int32_t>(numbers[i]);
  out.write(reinterpret_cast<const char*>(header.data()), kHeaderBytes);
  for (const FileTensor& t : file_tensors(config, padded)) {
    for (std::int64_t layer = 0; layer < (t.per_layer ? config.layers : 1); ++layer) {
      const std::string name =
          t.per_layer ? fmt::format("h.{}.{}", layer, t.name) : std::string(t.name);
      const std::string bytes = stored_tensor(t, name, config, dtype, source);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
}

}  // namespace sinew::model
