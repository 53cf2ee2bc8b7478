#include "model/weights_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "model/layout.h"
#include "model/quote.h"
#include "sched/base/error.h"

namespace sinew::model {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kPrefix = "transformer.";  // that some files of GPT-2 have
constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Buffers that are computed, not trained.
constexpr std::array<std::string_view, 3> kNoWeights = {".attn.bias", ".attn.masked_bias",
                                                        ".rotary_emb.inv_freq"};

std::string_view plain_name(std::string_view stored) {
  return stored.starts_with(kPrefix) ? stored.substr(kPrefix.size()) : stored;
}

bool is_no_weight(std::string_view name) {
  return std::ranges::any_of(kNoWeights,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// The file in a folder that holds the weights, or says which files do.
std::string file_in(const std::string& folder) {
  for (const char* name : {kOneFile, kIndexFile}) {
    const fs::path path = fs::path(folder) / name;
    if (fs::exists(path)) return path.string();
  }
  throw UsageError(fmt::format("folder '{}' holds no weights; legal: one with {} or {}", folder,
                               kOneFile, kIndexFile));
}

}  // namespace

WeightsFile::WeightsFile(const std::string& path) : path_(path) {
  std::error_code unreadable;
  if (fs::is_directory(path, unreadable)) path_ = file_in(path);
  if (path_.ends_with(".json")) {
    open_shards(path_);
    return;
  }
  if (is_llmc_model(MappedFile(path_).bytes())) {
    llmc_ = std::make_unique<LlmcModelFile>(path_);
    return;
  }
  files_.emplace_back(path_);
  for (const auto& [name, entry] : files_.front().index().tensors) file_of_[name] = 0;
}

void WeightsFile::open_shards(const std::string& index_path) {
  const auto fail = [&](const std::string& what) {
    throw UsageError(
        fmt::format("index of weights '{}': {}; legal: a JSON object whose weight_map "
                    "names the .safetensors file beside it of each tensor",
                    index_path, what));
  };
  const MappedFile index(index_path);
  const auto* text = reinterpret_cast<const char*>(index.bytes().data());
  const json document = json::parse(text, text + index.bytes().size(), nullptr, false);
  if (document.is_discarded() || !document.is_object()) fail("it is no JSON object");
  if (!document.contains("weight_map") || !document["weight_map"].is_object())
    fail("it has no weight_map");
  std::map<std::string, std::size_t> numbers;
  for (const auto& [tensor, value] : document["weight_map"].items()) {
    if (!value.is_string()) fail(fmt::format("tensor {} is in no file", quoted(tensor)));
    const auto file = value.get<std::string>();
    if (file.empty() || file.find('/') != std::string::npos)
      fail(fmt::format("tensor {} is in {}, no file beside it", quoted(tensor), quoted(file)));
    const auto [at, is_new] = numbers.emplace(file, files_.size());
    if (is_new) files_.emplace_back((fs::path(index_path).parent_path() / file).string());
    if (!files_[at->second].index().tensors.contains(tensor))
      fail(fmt::format("tensor {} is not in {}", quoted(tensor), quoted(file)));
    file_of_[tensor] = at->second;
  }
}

const SafetensorsFile& WeightsFile::holder(const std::string& name) const {
  auto found = file_of_.find(std::string(kPrefix) + name);
  if (found == file_of_.end()) found = file_of_.find(name);
  if (found == file_of_.end())
    throw UsageError(fmt::format("'{}' has no tensor '{}'", path_, name));
  return files_[found->second];
}

Tensor WeightsFile::require(const std::string& name, const std::vector<std::int64_t>& shape) {
  return llmc_ != nullptr ? llmc_->require(name, shape) : holder(name).require(name, shape);
}

void WeightsFile::check_nothing_else(const std::vector<Parameter>& parameters) {
  std::set<std::string_view> known;
  const Parameter* tied = nullptr;
  for (const Parameter& p : parameters) {
    known.insert(p.name);
    if (p.layout.tied) tied = &p;
  }
  const auto refuse = [&](std::string_view name, std::size_t count, std::string_view why) {
    throw UsageError(
        fmt::format("'{}' holds tensor {}{}, which {}; legal: the --model that the "
                    "file is of",
                    path_, quoted(std::string(name)),
                    count > 1 ? fmt::format(" and {} more", count - 1) : "", why));
  };
  std::vector<std::string> others;
  if (llmc_ != nullptr) {
    for (const Parameter& p : whole_parameters(llmc_->header().config))
      if (!known.contains(p.name)) others.push_back(p.name);
  }
  for (const auto& [stored, file] : file_of_) {
    const std::string name(plain_name(stored));
    if (known.contains(name) || is_no_weight(name)) continue;
    if (name != "lm_head.weight" || tied == nullptr) {
      others.push_back(name);
      continue;
    }
    const Tensor head = files_[file].at(stored);
    const Tensor table = require(tied->name, tied->shape);
    const bool same =
        head.dtype == table.dtype && head.shape == table.shape &&
        std::memcmp(head.data, table.data,
                    static_cast<std::size_t>(head.count()) * size_of(head.dtype)) == 0;
    if (!same) refuse(name, 1, "is not the token table that the model's head is");
  }
  if (!others.empty()) refuse(others.front(), others.size(), "the model does not have");
}

}  // namespace sinew::model
