#include "model/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "model/mapped_file.h"
#include "model/safetensors.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/philox.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartial = ".partial";
constexpr std::uint32_t kInitPurpose = 0x1217;

// A file of known size that every rank maps and writes its slices into.
class SharedOutput {
 public:
  SharedOutput(const std::string& path, std::int64_t size_bytes)
      : path_(path), size_(static_cast<std::size_t>(size_bytes)) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor >= 0)
      memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    if (descriptor < 0 || memory_ == MAP_FAILED) {
      throw Error(
          fmt::format("checkpoint file '{}' cannot be written: {}", path, std::strerror(error)));
    }
  }
  ~SharedOutput() { ::munmap(memory_, size_); }
  SharedOutput(const SharedOutput&) = delete;
  SharedOutput& operator=(const SharedOutput&) = delete;

  std::byte* bytes() { return static_cast<std::byte*>(memory_); }
  void flush() {
    if (::msync(memory_, size_, MS_SYNC) != 0) {
      throw Error(
          fmt::format("checkpoint file '{}' cannot be flushed: {}", path_, std::strerror(errno)));
    }
  }

 private:
  std::string path_;
  std::size_t size_;
  void* memory_ = MAP_FAILED;
};

// Creates `path` with this header and reserves the data's space, so that a full disk is an error
// here and not a signal at a store.
void create_output(const std::string& path, const std::string& header, std::int64_t size_bytes) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  int error = descriptor < 0 ? errno : ::posix_fallocate(descriptor, 0, size_bytes);
  if (error == 0 &&
      ::pwrite(descriptor, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()))
    error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (error != 0)
    throw Error(
        fmt::format("checkpoint file '{}' cannot be created: {}", path, std::strerror(error)));
}

void create_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << '\n';
  file.close();
  if (!file) throw Error(fmt::format("checkpoint file '{}' cannot be written", path));
}

// All tensors of the model with one prefix, in model order.
void add_tensors(const Config& config, DType dtype, const std::string& prefix,
                 std::vector<NamedTensor>& tensors) {
  const StageShape whole{0, config.layers, true, true};
  for (const Parameter& p : stage_parameters(config, whole, {})) {
    tensors.push_back({prefix + p.name, {.dtype = dtype, .shape = p.shape}});
  }
}

const TensorEntry& find_entry(const std::vector<NamedTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const NamedTensor& t) { return t.name == name; });
  CHECK(found != tensors.end());
  return found->entry;
}

std::string state_json(const TrainingState& state) {
  const nlohmann::json document = {
      {"step", state.step},           {"optimizer_steps", state.optimizer_steps},
      {"sequences", state.sequences}, {"seed", state.seed},
      {"dtype", state.dtype},         {"model", nlohmann::json::parse(to_json(state.config))},
  };
  return document.dump(2);
}

// Numbers of the complete checkpoints in a directory, increasing.
std::vector<std::int64_t> complete_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    const std::string digits = name.starts_with(kStepPrefix) ? name.substr(kStepPrefix.size()) : "";
    if (digits.empty() || digits.size() > 15 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    steps.push_back(std::stoll(digits));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string step_path(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/{}{:08}", directory, kStepPrefix, step);
}

void replace_checkpoint(const std::string& directory, const std::string& partial,
                        std::int64_t step) {
  const std::string target = step_path(directory, step);
  fs::remove_all(target);
  fs::rename(partial, target);
  std::vector<std::int64_t> steps = complete_steps(directory);
  for (std::size_t i = 0; i + kKept < steps.size(); ++i)
    fs::remove_all(step_path(directory, steps[i]));
}

template <typename Source, typename T>
void convert(const std::byte* source, std::int64_t begin, std::int64_t count, T* target) {
  for (std::int64_t i = 0; i < count; ++i) {
    Source value;
    std::memcpy(&value, source + static_cast<std::size_t>(begin + i) * sizeof(Source),
                sizeof(Source));
    if constexpr (std::is_same_v<Source, bf16> || std::is_same_v<Source, f16>) {
      target[i] = static_cast<T>(to_float(value));
    } else {
      target[i] = static_cast<T>(value);
    }
  }
}

// target[0..count) = elements [begin, ..) of the tensor.
template <typename T>
void read_elements(const TensorEntry& entry, const std::byte* data, std::int64_t begin,
                   std::int64_t count, T* target) {
  const std::byte* source = data + entry.begin;
  visit(entry.dtype, [&](auto zero) { convert<decltype(zero)>(source, begin, count, target); });
}

const TensorEntry& require(const SafetensorsIndex& index, const std::string& path,
                           const std::string& name, const std::vector<std::int64_t>& shape) {
  auto found = index.tensors.find(name);
  if (found == index.tensors.end()) found = index.tensors.find("transformer." + name);
  if (found == index.tensors.end())
    throw UsageError(fmt::format("'{}' has no tensor '{}'", path, name));
  if (found->second.shape != shape) {
    throw UsageError(fmt::format("'{}': tensor '{}' has shape [{}]; the model needs [{}]", path,
                                 name, fmt::join(found->second.shape, ", "),
                                 fmt::join(shape, ", ")));
  }
  if (!info(found->second.dtype).is_float) {
    throw UsageError(fmt::format("'{}': tensor '{}' is {}; legal values: f32, f64, bf16, f16", path,
                                 name, name_of(found->second.dtype)));
  }
  return found->second;
}

}  // namespace

template <typename T>
void save_checkpoint(const std::string& directory, const TrainingState& state, Stage<T>& stage,
                     Optimizer<T>& optimizer, Parallel& parallel) {
  const std::string partial = step_path(directory, state.step) + std::string(kPartial);
  std::vector<NamedTensor> weights;
  add_tensors(state.config, dtype_of_v<T>, "", weights);
  std::vector<NamedTensor> moments;
  add_tensors(state.config, dtype_of_v<T>, "first_moment.", moments);
  add_tensors(state.config, dtype_of_v<T>, "second_moment.", moments);
  const std::string weights_header = make_safetensors_header(weights, {{"format", "pt"}});
  const std::string moments_header = make_safetensors_header(moments, {});
  const auto size = [](const std::string& header, const std::vector<NamedTensor>& tensors) {
    return static_cast<std::int64_t>(header.size()) + tensors.back().entry.end;
  };
  const CheckpointPaths paths{partial + "/model.safetensors", partial + "/optimizer.safetensors",
                              partial + "/state.json"};
  if (parallel.rank() == 0) {
    std::error_code error;
    fs::remove_all(partial, error);
    fs::create_directories(partial, error);
    if (error)
      throw Error(
          fmt::format("checkpoint directory '{}' cannot be created: {}", partial, error.message()));
    create_output(paths.model, weights_header, size(weights_header, weights));
    create_output(paths.optimizer, moments_header, size(moments_header, moments));
    create_text(paths.state, state_json(state));
  }
  parallel.world().barrier();
  {
    SharedOutput model(paths.model, size(weights_header, weights));
    SharedOutput states(paths.optimizer, size(moments_header, moments));
    const auto put = [](SharedOutput& output, const std::string& header, const TensorEntry& entry,
                        std::int64_t logical, const T* source, std::int64_t count) {
      std::memcpy(output.bytes() + header.size() + static_cast<std::size_t>(entry.begin) +
                      static_cast<std::size_t>(logical) * sizeof(T),
                  source, static_cast<std::size_t>(count) * sizeof(T));
    };
    const std::int64_t begin = optimizer.shard_begin();
    const std::int64_t end = begin + optimizer.shard_count();
    const bool whole_shard = optimizer.shard_count() == stage.count();
    for (const Parameter& p : stage.parameters()) {
      if (!holds_for_all(p, parallel.coordinates()) ||
          (whole_shard && parallel.coordinates().dp != 0))
        continue;
      const TensorEntry& weight = find_entry(weights, p.name);
      const TensorEntry& first = find_entry(moments, "first_moment." + p.name);
      const TensorEntry& second = find_entry(moments, "second_moment." + p.name);
      for_each_run_within(
          p, begin, end, [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
            put(model, weights_header, weight, logical, stage.weights() + flat, count);
            put(states, moments_header, first, logical, optimizer.first_moment() + (flat - begin),
                count);
            put(states, moments_header, second, logical, optimizer.second_moment() + (flat - begin),
                count);
          });
    }
    model.flush();
    states.flush();
  }
  parallel.world().barrier();
  if (parallel.rank() == 0) replace_checkpoint(directory, partial, state.step);
  parallel.world().barrier();
}

CheckpointPaths find_checkpoint(const std::string& directory) {
  std::string base = directory;
  if (!fs::exists(base + "/state.json")) {
    const std::vector<std::int64_t> steps = complete_steps(directory);
    if (steps.empty())
      throw UsageError(
          fmt::format("'{}' holds no checkpoint (no {}N directory in it)", directory, kStepPrefix));
    base = step_path(directory, steps.back());
  }
  const CheckpointPaths paths{base + "/model.safetensors", base + "/optimizer.safetensors",
                              base + "/state.json"};
  for (const std::string& path : {paths.model, paths.optimizer, paths.state}) {
    if (!fs::exists(path))
      throw UsageError(fmt::format("checkpoint '{}' is damaged: '{}' is missing", base, path));
  }
  return paths;
}

TrainingState parse_state(std::string_view json_text, const std::string& where) {
  const auto document = nlohmann::json::parse(json_text, nullptr, false);
  const auto whole = [&](const char* key) -> std::int64_t {
    if (!document.contains(key) || !document[key].is_number_unsigned()) {
      throw UsageError(fmt::format("'{}': key '{}' is missing or not a whole number", where, key));
    }
    return document[key].get<std::int64_t>();
  };
  if (document.is_discarded() || !document.is_object())
    throw UsageError(fmt::format("'{}' is no JSON object", where));
  if (!document.contains("model") || !document.contains("dtype") ||
      !document["dtype"].is_string()) {
    throw UsageError(fmt::format("'{}': key 'model' or 'dtype' is missing", where));
  }
  TrainingState state;
  state.step = whole("step");
  state.optimizer_steps = whole("optimizer_steps");
  state.sequences = whole("sequences");
  state.seed = static_cast<std::uint64_t>(whole("seed"));
  state.dtype = document["dtype"].get<std::string>();
  state.config = parse_config(
      document["model"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), where);
  return state;
}

TrainingState read_state(const CheckpointPaths& paths) {
  std::ifstream file(paths.state, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return parse_state(text.str(), paths.state);
}

template <typename T>
void load_weights(const std::string& path, Stage<T>& stage) {
  const MappedFile file(path);
  const SafetensorsIndex index = parse_safetensors(file.bytes(), path);
  const std::byte* data = file.bytes().data() + index.data_begin;
  for (const Parameter& p : stage.parameters()) {
    const TensorEntry& entry = require(index, path, p.name, p.shape);
    p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
      read_elements(entry, data, logical, count, stage.weights() + p.offset + local);
    });
  }
}

template <typename T>
void load_optimizer(const CheckpointPaths& paths, Stage<T>& stage, Optimizer<T>& optimizer) {
  const MappedFile file(paths.optimizer);
  const SafetensorsIndex index = parse_safetensors(file.bytes(), paths.optimizer);
  const std::byte* data = file.bytes().data() + index.data_begin;
  const std::int64_t begin = optimizer.shard_begin();
  for (const Parameter& p : stage.parameters()) {
    const TensorEntry& first = require(index, paths.optimizer, "first_moment." + p.name, p.shape);
    const TensorEntry& second = require(index, paths.optimizer, "second_moment." + p.name, p.shape);
    for_each_run_within(
        p, begin, begin + optimizer.shard_count(),
        [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
          read_elements(first, data, logical, count, optimizer.first_moment() + (flat - begin));
          read_elements(second, data, logical, count, optimizer.second_moment() + (flat - begin));
        });
  }
}

template <typename T>
void initialize_weights(std::uint64_t seed, Stage<T>& stage) {
  const Philox random(seed, kInitPurpose);
  for (const Parameter& p : stage.parameters()) {
    p.slice.for_each_run([&](std::int64_t local, std::int64_t logical, std::int64_t count) {
      T* target = stage.weights() + p.offset + local;
      for (std::int64_t i = 0; i < count; ++i) {
        target[i] =
            p.init_std > 0
                ? static_cast<T>(p.init_std * random.normal(static_cast<std::uint64_t>(logical + i),
                                                            static_cast<std::uint64_t>(p.index)))
                : static_cast<T>(p.init_value);
      }
    });
  }
}

#define SINEW_INSTANTIATE(T)                                                            \
  template void save_checkpoint<T>(const std::string&, const TrainingState&, Stage<T>&, \
                                   Optimizer<T>&, Parallel&);                           \
  template void load_weights<T>(const std::string&, Stage<T>&);                         \
  template void load_optimizer<T>(const CheckpointPaths&, Stage<T>&, Optimizer<T>&);    \
  template void initialize_weights<T>(std::uint64_t, Stage<T>&);
SINEW_INSTANTIATE(float)
SINEW_INSTANTIATE(double)
#undef SINEW_INSTANTIATE

}  // namespace sinew::model
