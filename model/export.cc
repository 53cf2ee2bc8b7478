#include "model/export.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "model/aside.h"
#include "model/llmc_model.h"
#include "model/quote.h"
#include "model/safetensors.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;

template <typename T>
void write_as(const Tensor& tensor, std::ostream& out) {
  std::vector<T> values(static_cast<std::size_t>(tensor.count()));
  read_elements(tensor, 0, tensor.count(), values.data());
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

void write_safetensors(std::ostream& out, const Config& config, DType dtype,
                       const SafetensorsFile& source) {
  std::vector<NamedTensor> tensors;
  const std::vector<Parameter> parameters = whole_parameters(config);
  for (const Parameter& p : parameters)
    tensors.push_back({p.name, {.dtype = dtype, .shape = p.shape}});
  // What Hugging Face's loaders ask for.
  const std::string header = make_safetensors_header(tensors, {{"format", "pt"}});
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const Parameter& p : parameters) {
    const Tensor tensor = source.require(p.name, p.shape);
    if (dtype == DType::kF64) {
      write_as<double>(tensor, out);
    } else if (dtype == DType::kF32) {
      write_as<float>(tensor, out);
    } else {
      write_as<bf16>(tensor, out);
    }
  }
}

}  // namespace

void check_export(const std::string& path, DType dtype) {
  const bool llmc = path.ends_with(".bin");
  if (!llmc && !path.ends_with(".safetensors"))
    throw UsageError(
        fmt::format("export to {}: the ending names the format; legal: .safetensors, .bin (llm.c)",
                    quoted(path)));
  if (dtype != DType::kF32 && dtype != DType::kBf16 && (llmc || dtype != DType::kF64))
    throw UsageError(fmt::format("dtype '{}'; legal values: f32, bf16{}", sinew::name_of(dtype),
                                 llmc ? "" : ", f64"));
}

namespace {

void check_target(const CheckpointPaths& paths, const std::string& path, const Config& config,
                  DType dtype) {
  std::error_code ignored;
  for (const std::string& own : {paths.model, paths.optimizer, paths.state}) {
    if (fs::equivalent(own, path, ignored))
      throw UsageError(fmt::format(
          "export to {}: it is the checkpoint's own file; legal: any other name", quoted(path)));
  }
  std::int64_t needed = 0;
  for (const Parameter& p : whole_parameters(config))
    needed += p.slice.logical_count() * static_cast<std::int64_t>(size_of(dtype));
  const fs::path folder = fs::path(path).parent_path();
  const fs::space_info space = fs::space(folder.empty() ? fs::path(".") : folder, ignored);
  if (!ignored && space.available < static_cast<std::uintmax_t>(needed)) {
    throw Error(fmt::format("file {} cannot be written: it needs {} bytes, the disk has {}",
                            quoted(path), needed, space.available));
  }
}

}  // namespace

void export_weights(const Checkpoint& checkpoint, const std::string& path, DType dtype) {
  check_export(path, dtype);
  const bool llmc = path.ends_with(".bin");
  const auto& [paths, state] = checkpoint;
  check_target(paths, path, state.config, dtype);
  const SafetensorsFile source(paths.model);
  if (llmc) check_llmc_model(state.config);
  check_weights(source, paths, state);

  const std::string target = followed(path);
  const std::string partial = create_aside(target);
  std::ofstream out(partial, std::ios::binary | std::ios::trunc);
  if (out && llmc) write_llmc_model(out, state.config, dtype, source);
  if (out && !llmc) write_safetensors(out, state.config, dtype, source);
  out.close();
  std::error_code error;
  if (out) fs::rename(partial, target, error);
  if (!out || error) {
    const std::string why = error ? error.message() : std::strerror(errno);
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw Error(fmt::format("file {} cannot be written: {}", quoted(path), why));
  }
}

}  // namespace sinew::model
