// llm.c's model files against PyTorch's (tests/golden): read into the same logits, written into the
// same bytes, refused in one line.
#include "model/llmc_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "model/checkpoint.h"
#include "model/export.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

const std::string kFolder = SINEW_SOURCE_DIR "/tests/golden/";

struct Kind {
  const char* name;
  DType dtype;
};
constexpr Kind kKinds[] = {{"f32", DType::kF32}, {"bf16", DType::kBf16}};

std::string path_of(const Kind& kind) { return kFolder + "llmc_" + kind.name + ".bin"; }

template <typename T>
std::vector<T> golden(const std::string& name) {
  const SafetensorsFile file(kFolder + "llmc_golden.safetensors");
  const Tensor tensor = file.at(name);
  EXPECT_EQ(size_of(tensor.dtype), sizeof(T));
  std::vector<T> values(static_cast<std::size_t>(tensor.count()));
  std::memcpy(values.data(), tensor.data, values.size() * sizeof(T));
  return values;
}

TEST(LlmcModel, BothVersionsGiveTheLogitsOfPyTorchTo1e12) {
  for (const Kind& kind : kKinds) {
    const Config config = load_config(path_of(kind));
    EXPECT_EQ(config.vocabulary, 53);
    EXPECT_EQ(config.parameters(), 53 * 16 + 8 * 16 + 2 * (12 * 256 + 13 * 16) + 2 * 16);
    Memory memory;
    Stage<double> stage(config, StageParts::one(config, {0, 2, true, true}), {}, nullptr, {2, 8},
                        {}, {}, memory);
    load_weights(path_of(kind), config, stage);
    const auto tokens = golden<std::int32_t>("tokens");
    const std::vector<std::int32_t> targets(tokens.size(), -1);
    static_cast<void>(stage.forward(stage.open(0), {tokens.data(), targets.data()}, 0.0,
                                    Stage<double>::Mode::kEvaluate));
    const auto expected = golden<double>(std::string("logits_") + kind.name);
    double most = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      most = std::max(most, std::abs(expected[i] - stage.logits()[i]));
    EXPECT_LE(most, 1e-12) << kind.name;
  }
}

// Read by a training run, saved by it, written from the checkpoint: bit for bit what was read, the
// padding included, in any layout and with bf16 weights, too.
TEST(LlmcModel, WhatIsReadIsWrittenAgainToTheLastByte) {
  const test::ScratchDirectory directory;
  for (const Kind& kind : kKinds) {
    TrainOptions options;
    options.model = options.init = path_of(kind);
    options.data = test::write_text_data(directory);
    options.dtype = kind.name;
    options.tp = 2;
    options.zero = 3;
    options.threads = 1;
    const std::string saved = directory.path(kind.name);
    test::run_ranks(4, [&](comm::Communicator& ranks) {
      Trainer::create(make_plan(options, 4), ranks)->save(saved);
    });
    const Checkpoint checkpoint = open_checkpoint(saved, CheckpointUse::kWeights);
    const std::string written = directory.path("written.bin");
    const auto same = [&](const Kind& as) {
      export_weights(checkpoint, written, as.dtype);
      return test::read_file(written) == test::read_file(path_of(as));
    };
    EXPECT_TRUE(same(kind)) << kind.name;
    // f32 weights round to those that PyTorch rounded them to.
    EXPECT_TRUE(same(kKinds[1])) << kind.name;
    EXPECT_FALSE(std::filesystem::exists(written + ".partial"));
  }
}

// Rows of the token table past the vocabulary are padding: whatever they hold, no logit, loss,
// gradient or written file sees it.
TEST(LlmcModel, PaddingOfTheVocabularyIsNeverRead) {
  const test::ScratchDirectory directory;
  std::string bytes = test::read_file(path_of(kKinds[0]));
  const float poison = std::nanf("");
  for (std::size_t i = 53 * 16; i < 128 * 16; ++i)
    std::memcpy(bytes.data() + 1024 + i * sizeof poison, &poison, sizeof poison);
  TrainOptions options;
  options.batch = 4;
  options.threads = 1;
  options.tp = 2;
  LayoutRun runs[2];
  std::size_t which = 0;
  for (const std::string& path : {path_of(kKinds[0]), directory.write("poisoned.bin", bytes)}) {
    options.model = options.init = path;
    runs[which++] = test::run_on_threads(options, 2, 2);
  }
  EXPECT_TRUE(std::isfinite(runs[1].losses.back()));
  EXPECT_TRUE(compare_runs(runs[0], runs[1]).bits_equal);
}

TEST(LlmcModel, DamageIsSaidInOneLine) {
  const test::ScratchDirectory directory;
  const std::string good = test::read_file(path_of(kKinds[0]));
  const auto refused = [&](std::size_t number, std::int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + number * 4, &value, sizeof value);
    const std::string path = directory.write("bad.bin", bytes);
    return test::usage_error_of([&] { const LlmcModelFile file(path); });
  };
  EXPECT_EQ(refused(0, 20240326), "");
  EXPECT_NE(refused(0, 20240520).find("magic 20240520 is not that of llm.c's models, 20240326"),
            std::string::npos);
  EXPECT_NE(refused(1, 4).find("version 4; legal values: 3 (f32), 5 (bf16)"), std::string::npos);
  EXPECT_NE(refused(4, 0).find("layers is 0"), std::string::npos);
  EXPECT_NE(refused(5, 3).find("not a multiple of heads 3"), std::string::npos);
  EXPECT_NE(refused(7, 52).find("vocabulary of 53 padded to 52"), std::string::npos);
  EXPECT_NE(refused(7, 129).find("the header promises"), std::string::npos);
  EXPECT_NE(refused(1, 5).find("the header promises"), std::string::npos);
  LlmcModelFile file(path_of(kKinds[0]));
  EXPECT_NE(test::usage_error_of([&] {
              static_cast<void>(file.require("lm_head.weight", {53, 16}));
            }).find("no tensor lm_head.weight"),
            std::string::npos);
  EXPECT_NE(test::usage_error_of([&] {
              static_cast<void>(file.require("wpe.weight", {9, 16}));
            }).find("is [8, 16], the model needs [9, 16]"),
            std::string::npos);
  EXPECT_NE(test::usage_error_of([&] {
              static_cast<void>(file.require("h.2.ln_1.bias", {16}));
            }).find("no tensor"),
            std::string::npos);
}

// What is exported is read again as the same weights; of bf16 the rounded ones.
TEST(Export, SafetensorsHoldTheWeightsInTheTypeAskedFor) {
  const test::ScratchDirectory directory;
  for (const char* model : {"byte-tiny", "llama-tiny"}) {
    TrainOptions options;
    options.model = model;
    options.data = test::write_text_data(directory);
    options.threads = 1;
    const std::string saved = directory.path(model);
    test::run_ranks(2, [&](comm::Communicator& ranks) {
      Trainer::create(make_plan(options, 2), ranks)->save(saved);
    });
    const Checkpoint checkpoint = open_checkpoint(saved, CheckpointUse::kWeights);
    const CheckpointPaths& paths = checkpoint.paths;
    const SafetensorsFile source(paths.model);
    const std::string written = directory.path("written.safetensors");
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBf16}) {
      export_weights(checkpoint, written, dtype);
      const SafetensorsFile file(written);
      EXPECT_EQ(file.index().tensors.size(), source.index().tensors.size());
      for (const auto& [name, entry] : source.index().tensors) {
        const Tensor tensor = file.require(name, entry.shape);
        EXPECT_EQ(tensor.dtype, dtype);
        std::vector<float> expected(static_cast<std::size_t>(tensor.count()));
        std::vector<float> found(expected.size());
        read_elements(source.at(name), 0, tensor.count(), expected.data());
        read_elements(tensor, 0, tensor.count(), found.data());
        if (dtype == DType::kBf16) {
          for (float& value : expected) value = to_float(to_bf16(value));
        }
        EXPECT_EQ(found, expected) << name;
      }
    }
  }
}

TEST(Export, WhatCannotBeWrittenIsSaidInOneLine) {
  const test::ScratchDirectory directory;
  TrainOptions options;
  options.model = "llama-tiny";
  options.data = test::write_text_data(directory);
  options.threads = 1;
  const std::string saved = directory.path("saved");
  test::run_ranks(1, [&](comm::Communicator& ranks) {
    Trainer::create(make_plan(options, 1), ranks)->save(saved);
  });
  const Checkpoint checkpoint = open_checkpoint(saved, CheckpointUse::kWeights);
  const CheckpointPaths& paths = checkpoint.paths;
  const auto refused = [&](const std::string& name, DType dtype) {
    return test::usage_error_of([&] { export_weights(checkpoint, directory.path(name), dtype); });
  };
  EXPECT_NE(refused("x.bin", DType::kF32).find("GPT-2 with a tied head"), std::string::npos);
  EXPECT_NE(refused("x.bin", DType::kF64).find("legal values: f32, bf16"), std::string::npos);
  EXPECT_NE(refused("x.safetensors", DType::kI32).find("f32, bf16, f64"), std::string::npos);
  EXPECT_NE(refused("x.npz", DType::kF32).find(".safetensors, .bin"), std::string::npos);
  EXPECT_THROW(export_weights(checkpoint, directory.path("no/such/x.safetensors"), DType::kF32),
               Error);
  EXPECT_NE(test::usage_error_of([&] {
              export_weights(checkpoint, paths.model, DType::kBf16);
            }).find("the checkpoint's own file"),
            std::string::npos);
  std::string damaged = test::read_file(paths.model);
  damaged[damaged.size() - 9] ^= 1;
  std::ofstream(paths.model, std::ios::binary) << damaged;
  EXPECT_NE(refused("x.safetensors", DType::kF32).find("fingerprint"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(directory.path("x.safetensors")));
}

}  // namespace
}  // namespace sinew::model
