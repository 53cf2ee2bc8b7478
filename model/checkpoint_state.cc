// The small side of a checkpoint: its directory, state.json and the name of the newest one.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "model/checkpoint.h"
#include "model/quote.h"
#include "model/shared_output.h"
#include "model/tensor.h"
#include "sched/base/error.h"
#include "sched/base/text.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kPartial = ".partial";

// The step of a name "step-00000100"; nothing else is a checkpoint's name.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  const bool whole = error == std::errc() && end == name.data() + name.size() && step >= 0;
  return whole ? std::optional(step) : std::nullopt;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string damaged(const std::string& where, const std::string& what) {
  return fmt::format("checkpoint file '{}' is damaged: {}", where, what);
}

// Both names change in one step, so that no moment lacks a checkpoint under `target`.
void exchange(const std::string& partial, const std::string& target) {
  constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE
  const long result =
      ::syscall(SYS_renameat2, AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), kExchange);
  if (result != 0)
    throw Error(
        fmt::format("checkpoint '{}' cannot be replaced: {}", target, std::strerror(errno)));
}

std::uint64_t number_of(const json& document, const char* key, const std::string& where) {
  if (!document.contains(key) || !document[key].is_number_unsigned())
    throw UsageError(damaged(where, fmt::format("'{}' is missing or not a whole number", key)));
  return document[key].get<std::uint64_t>();
}

std::int64_t count_of(const json& document, const char* key, const std::string& where) {
  const std::uint64_t value = number_of(document, key, where);
  if (value > static_cast<std::uint64_t>(INT64_MAX))
    throw UsageError(damaged(where, fmt::format("'{}' is out of range", key)));
  return static_cast<std::int64_t>(value);
}

std::uint64_t parse_fingerprint(const json& value, const std::string& where) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size())
    throw UsageError(damaged(where, "a fingerprint is not 16 hexadecimal digits"));
  return number;
}

std::map<std::string, std::uint64_t> parse_fingerprints(const json& document,
                                                        const std::string& where) {
  std::map<std::string, std::uint64_t> fingerprints;
  if (!document.is_object()) throw UsageError(damaged(where, "fingerprints are no object"));
  for (const auto& [name, value] : document.items())
    fingerprints[name] = parse_fingerprint(value, where);
  return fingerprints;
}

DataOrder parse_order(const json& document, const std::string& where) {
  if (!document.is_object() || !document.contains("fingerprint"))
    throw UsageError(damaged(where, "'data' is no object with a fingerprint"));
  return {.time = count_of(document, "seq", where),
          .training_windows = count_of(document, "training_windows", where),
          .tokens = count_of(document, "tokens", where),
          .fingerprint = parse_fingerprint(document["fingerprint"], where)};
}

// Of everything else in the document.
std::string checksum_of(json document) {
  document.erase("checksum");
  const std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  return fmt::format("{:016x}",
                     fingerprint(text.data(), 1, 0, static_cast<std::int64_t>(text.size())));
}

}  // namespace

std::string step_path(const std::string& directory, std::int64_t step) {
  return fmt::format("{}/{}{:08}", directory, kStepPrefix, step);
}

void publish_checkpoint(const std::string& directory, const std::string& partial,
                        std::int64_t step) {
  const std::string target = step_path(directory, step);
  flush_directory(partial);
  if (fs::exists(target)) {
    exchange(partial, target);
    fs::remove_all(partial);
  } else {
    fs::rename(partial, target);
  }
  const std::string latest = directory + "/latest";
  write_text(latest + ".partial", fs::path(target).filename().string() + "\n");
  fs::rename(latest + ".partial", latest);
  flush_directory(directory);
}

namespace {

constexpr std::array kFiles = {"model.safetensors", "optimizer.safetensors", "state.json"};

// Whether the folder holds a checkpoint's files and nothing else.
bool holds_checkpoint_only(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (std::find(kFiles.begin(), kFiles.end(), name) == kFiles.end()) return false;
  }
  return true;
}

}  // namespace

void remove_unfinished(const std::string& directory) {
  std::error_code ignored;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kPartial) || entry.is_symlink(ignored)) continue;
    const std::string whole = name.substr(0, name.size() - kPartial.size());
    if (whole == "latest" || whole == "metrics.jsonl" || whole == "summary.json" ||
        (step_of(whole) && entry.is_directory(ignored)))
      unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) {
    for (const char* name : kFiles)
      if (fs::is_directory(path, ignored)) fs::remove(path / name, ignored);
    fs::remove(path, ignored);  // a folder that holds anything else stays
  }
}

void remove_older(const std::string& directory, std::int64_t newest, std::int64_t keep) {
  std::error_code ignored;
  std::vector<std::int64_t> steps;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && *step <= newest && entry.path() == step_path(directory, *step) &&
        entry.is_directory(ignored) && !entry.is_symlink(ignored) &&
        holds_checkpoint_only(entry.path()))
      steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
    const std::string path = step_path(directory, steps[i]);
    // Unfinished first: what a kill leaves of it is nothing to resume from.
    const std::string aside = path + std::string(kPartial);
    std::error_code error;
    fs::remove_all(aside, error);
    if (!error) fs::rename(path, aside, error);
    if (!error) fs::remove_all(aside, error);
    if (error)
      throw Error(fmt::format("checkpoint '{}' cannot be removed: {}", path, error.message()));
  }
}

std::optional<std::int64_t> highest_step(const std::string& directory) {
  std::optional<std::int64_t> highest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && (!highest || *step > *highest)) highest = step;
  }
  return highest;
}

CheckpointPaths find_checkpoint(const std::string& directory, CheckpointUse use) {
  // What may not be looked into is said in one line.
  const auto exists = [](const std::string& path) {
    std::error_code error;
    const bool found = fs::exists(path, error);
    if (error)
      throw UsageError(fmt::format("{} cannot be looked at: {}", quoted(path), error.message()));
    return found;
  };
  std::string base = directory;
  if (!exists(base + "/state.json")) {
    const std::string latest = directory + "/latest";
    const bool named = exists(latest);
    const std::string name = named ? std::string(trim(read_text(latest))) : std::string();
    const auto step = named ? step_of(name) : highest_step(directory);
    if (named && !step)
      throw UsageError(damaged(
          latest, fmt::format("{} is no name of a checkpoint, {}N; without the file the highest N "
                              "is taken",
                              quoted(name), kStepPrefix)));
    if (!step)
      throw UsageError(
          fmt::format("'{}' holds no checkpoint: no state.json, no latest and no {}N "
                      "directory in it",
                      directory, kStepPrefix));
    base = step_path(directory, *step);
  }
  CheckpointPaths paths{base + "/model.safetensors", base + "/optimizer.safetensors",
                        base + "/state.json"};
  for (const std::string& path : {paths.model, paths.optimizer, paths.state}) {
    if (use == CheckpointUse::kWeights && path == paths.optimizer) continue;
    if (!exists(path))
      throw UsageError(fmt::format("checkpoint '{}' is damaged: '{}' is missing", base, path));
  }
  return paths;
}

std::string print_state(const TrainingState& state) {
  json fingerprints = json::object();
  for (const auto& [name, value] : state.fingerprints)
    fingerprints[name] = fmt::format("{:016x}", value);
  json document = {
      {"step", state.step},           {"optimizer_steps", state.optimizer_steps},
      {"sequences", state.sequences}, {"seed", state.seed},
      {"dtype", state.dtype},         {"model", json::parse(to_json(state.config))},
      {"fingerprints", fingerprints},
  };
  if (state.data.training_windows > 0) {
    document["data"] = {{"seq", state.data.time},
                        {"training_windows", state.data.training_windows},
                        {"tokens", state.data.tokens},
                        {"fingerprint", fmt::format("{:016x}", state.data.fingerprint)}};
  }
  document["checksum"] = checksum_of(document);
  return document.dump(2) + "\n";
}

namespace {

TrainingState state_of(const json& document, const std::string& where) {
  if (document.is_discarded() || !document.is_object())
    throw UsageError(damaged(where, "no JSON object"));
  const auto number = [&](const char* key) { return number_of(document, key, where); };
  const auto count = [&](const char* key) { return count_of(document, key, where); };
  for (const char* key : {"model", "dtype", "fingerprints"}) {
    if (!document.contains(key)) throw UsageError(damaged(where, fmt::format("no '{}'", key)));
  }
  if (!document["dtype"].is_string()) throw UsageError(damaged(where, "'dtype' is no text"));
  TrainingState state;
  state.step = count("step");
  state.optimizer_steps = count("optimizer_steps");
  state.sequences = count("sequences");
  state.seed = number("seed");
  state.dtype = document["dtype"].get<std::string>();
  state.config =
      parse_config(document["model"].dump(-1, ' ', false, json::error_handler_t::replace), where);
  if (document.contains("data")) state.data = parse_order(document["data"], where);
  state.fingerprints = parse_fingerprints(document["fingerprints"], where);
  return state;
}

}  // namespace

TrainingState parse_state(std::string_view json_text, const std::string& where) {
  return state_of(json::parse(json_text, nullptr, false), where);
}

TrainingState read_state(const CheckpointPaths& paths) {
  const json document = json::parse(read_text(paths.state), nullptr, false);
  if (document.is_object()) {
    const auto checksum = document.find("checksum");
    if (checksum == document.end() || *checksum != checksum_of(document))
      throw UsageError(damaged(paths.state, "its checksum is missing or not that of its text"));
  }
  TrainingState state = state_of(document, paths.state);
  // One that was put into another checkpoint's folder; a copied folder may have any other name.
  const fs::path folder = fs::path(paths.state).parent_path().filename();
  const std::optional<std::int64_t> named = step_of(folder.string());
  if (named && *named != state.step)
    throw UsageError(damaged(
        paths.state, fmt::format("it is of step {}, its folder of step {}", state.step, *named)));
  return state;
}

Checkpoint open_checkpoint(const std::string& directory, CheckpointUse use) {
  Checkpoint opened{find_checkpoint(directory, use), {}};
  opened.state = read_state(opened.paths);
  return opened;
}

}  // namespace sinew::model
