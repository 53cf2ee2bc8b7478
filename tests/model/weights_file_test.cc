// Weights of other programs: what may be in their files, and what would be another model.
#include "model/weights_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "model/checkpoint.h"
#include "model/stage.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

using test::ScratchDirectory;

constexpr Config tiny() {
  return {.name = {}, .layers = 2, .heads = 1, .channels = 4, .vocabulary = 3, .max_time = 2};
}

// A tensor in a file: whole numbers that depend on its place, in f32.
struct Stored {
  std::string name;
  std::vector<std::int64_t> shape;
  float first = 0;
};

std::vector<Stored> tensors_of(const Config& config) {
  std::vector<Stored> all;
  for (const Parameter& p : whole_parameters(config))
    all.push_back({p.name, p.shape, static_cast<float>(all.size())});
  return all;
}

std::string file_of(const std::vector<Stored>& stored) {
  std::vector<NamedTensor> tensors;
  std::string data;
  for (const Stored& one : stored) {
    tensors.push_back({one.name, {.dtype = DType::kF32, .shape = one.shape}});
    std::int64_t count = 1;
    for (const std::int64_t extent : one.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = one.first + static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  return make_safetensors_header(tensors, {}) + data;
}

// Empty when the weights are read and are those of tensors_of(config), else the refusal.
std::string read(const std::string& path, const Config& config) {
  try {
    WeightsFile file(path);
    const std::vector<Parameter> parameters = whole_parameters(config);
    file.check_nothing_else(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor tensor = file.require(parameters[i].name, parameters[i].shape);
      float first = 0;
      std::memcpy(&first, tensor.data, sizeof first);
      EXPECT_EQ(first, static_cast<float>(i)) << parameters[i].name;
    }
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(WeightsFile, ReadsOneFileItsFolderAndShardsWithTheirIndex) {
  const ScratchDirectory directory;
  const Config config = tiny();
  const std::vector<Stored> all = tensors_of(config);
  for (const char* folder : {"one", "many"})
    std::filesystem::create_directory(directory.path(folder));
  const std::string one = directory.write("one/model.safetensors", file_of(all));
  EXPECT_EQ(read(one, config), "");
  EXPECT_EQ(read(directory.path() + "/one", config), "");

  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  static_cast<void>(
      directory.write("many/a.safetensors", file_of({all.begin(), all.begin() + half})));
  static_cast<void>(
      directory.write("many/b.safetensors", file_of({all.begin() + half, all.end()})));
  std::string map;
  for (std::size_t i = 0; i < all.size(); ++i) {
    map += (i > 0 ? ", \"" : "\"") + all[i].name + "\": \"" +
           (static_cast<std::ptrdiff_t>(i) < half ? "a" : "b") + ".safetensors\"";
  }
  const std::string index = directory.write("many/model.safetensors.index.json",
                                            R"({"metadata": {}, "weight_map": {)" + map + "}}");
  EXPECT_EQ(read(index, config), "");
  EXPECT_EQ(read(directory.path() + "/many", config), "");
}

TEST(WeightsFile, EveryFaultOfAnIndexIsOneLine) {
  const ScratchDirectory directory;
  static_cast<void>(directory.write("a.safetensors", file_of(tensors_of(tiny()))));
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"[", "no JSON object"},
           {"{}", "no weight_map"},
           {R"({"weight_map": {"wte.weight": 3}})", "in no file"},
           {R"({"weight_map": {"wte.weight": "../a.safetensors"}})", "no file beside it"},
           {R"({"weight_map": {"nope": "a.safetensors"}})", "is not in"},
           {R"({"weight_map": {"wte.weight": "b.safetensors"}})", "b.safetensors"}}) {
    const std::string refusal = read(directory.write("index.json", text), tiny());
    EXPECT_NE(refusal.find(words), std::string::npos) << text << ": " << refusal;
    EXPECT_EQ(refusal.find('\n'), std::string::npos) << refusal;
  }
  std::filesystem::create_directory(directory.path("empty"));
  const std::string refusal = read(directory.path() + "/empty", tiny());
  EXPECT_NE(refusal.find("model.safetensors"), std::string::npos) << refusal;
}

// A tensor that is left out would train another model than the file holds.
TEST(WeightsFile, WhatTheModelDoesNotHaveIsRefusedAndWhatIsNoWeightIsNot) {
  const ScratchDirectory directory;
  const Config config = tiny();
  const auto with = [&](const Stored& more) {
    std::vector<Stored> all = tensors_of(config);
    all.push_back(more);
    return read(directory.write("weights.safetensors", file_of(all)), config);
  };
  EXPECT_EQ(with({"h.0.attn.bias", {1, 1, 2, 2}, 1}), "");
  EXPECT_EQ(with({"transformer.h.1.attn.masked_bias", {1}, 1}), "");
  EXPECT_EQ(with({"lm_head.weight", {3, 4}, 0}), "") << "the table again";
  EXPECT_NE(with({"lm_head.weight", {3, 4}, 5}).find("not the token table"), std::string::npos);
  EXPECT_NE(with({"h.2.ln_1.weight", {4}, 5}).find("h.2.ln_1.weight"), std::string::npos);

  Config deeper = config;
  deeper.layers = 3;
  const std::string refusal =
      read(directory.write("weights.safetensors", file_of(tensors_of(deeper))), config);
  EXPECT_NE(refusal.find("and 11 more, which the model does not have"), std::string::npos)
      << refusal;
}

// Masks of attention are stored as truth values, which are no weights.
TEST(WeightsFile, TypesThatNoWeightHasMayBeThereUntilTheyAreAskedFor) {
  const ScratchDirectory directory;
  std::string header = R"({"h.0.attn.bias":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
                       R"("wte.weight":{"dtype":"I16","shape":[1],"data_offsets":[3,5]}})";
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header + "01234";
  WeightsFile weights(directory.write("weights.safetensors", file));
  const std::string refusal =
      test::usage_error_of([&] { static_cast<void>(weights.require("wte.weight", {1})); });
  EXPECT_NE(refusal.find("is I16; legal values: f32, f64, bf16, f16"), std::string::npos)
      << refusal;
}

TEST(WeightsFile, AnLlmcFileOfAnotherDepthIsRefused) {
  const std::string path = std::string(SINEW_SOURCE_DIR) + "/tests/golden/llmc_f32.bin";
  Config shallower = load_config(path);
  WeightsFile file(path);
  file.check_nothing_else(whole_parameters(shallower));
  --shallower.layers;
  const std::string refusal =
      test::usage_error_of([&] { file.check_nothing_else(whole_parameters(shallower)); });
  EXPECT_NE(refusal.find("which the model does not have"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace sinew::model
