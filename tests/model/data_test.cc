// Token files and the order of sequences.
#include "model/data.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>

#include "sched/base/error.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, int width,
                 int tokens) {
  std::string bytes(1024, '\0');
  const std::int32_t header[3] = {magic, version, count};
  std::memcpy(bytes.data(), header, sizeof header);
  for (int i = 0; i < tokens; ++i) {
    const std::uint32_t token = static_cast<std::uint32_t>(i * 7);
    bytes.append(reinterpret_cast<const char*>(&token), static_cast<std::size_t>(width));
  }
  return bytes;
}

TEST(Tokens, BytesAndBothLlmcFormatsByTheirContent) {
  const test::ScratchDirectory directory;
  std::int32_t out[4];
  const Tokens text(directory.write("text", "abcd"));
  text.copy(1, 3, 256, out);
  EXPECT_EQ(out[0], 'b');
  for (const auto& [magic, version, width] :
       {std::tuple{20240520, 1, 2}, std::tuple{20240801, 7, 4}}) {
    const Tokens tokens(directory.write("llmc", llmc(magic, version, 100, width, 100)));
    ASSERT_EQ(tokens.size(), 100);
    tokens.copy(96, 4, 50257, out);
    EXPECT_EQ(out[3], 99 * 7);
    EXPECT_THROW(tokens.copy(96, 4, 600, out), Error);
  }
}

TEST(Tokens, DamageIsSaidInPlainWords) {
  const test::ScratchDirectory directory;
  struct Row {
    std::string path;
    const char* message;  // part of it
  };
  const std::vector<Row> table = {
      {directory.path("none"), "cannot be opened: No such file"},
      {directory.path(), "is not a regular file"},
      {directory.write("empty", ""), "is empty"},
      {directory.write("short", llmc(20240520, 1, 100, 2, 99)), "promises 100 tokens"},
      {directory.write("long", llmc(20240520, 1, 100, 2, 101)), "promises 100 tokens"},
      {directory.write("negative", llmc(20240520, 1, -1, 2, 0)), "promises -1 tokens"},
      {directory.write("version", llmc(20240520, 3, 10, 2, 10)), "version 3"},
      {directory.write("stub", llmc(20240520, 1, 0, 2, 0).substr(0, 40)), "shorter than"},
  };
  for (const Row& row : table) {
    const std::string message = test::usage_error_of([&] { const Tokens tokens(row.path); });
    EXPECT_NE(message.find(row.message), std::string::npos) << row.path << ": '" << message << "'";
  }
}

TEST(Order, PermuteIsABijectionForEverySizeAndDependsOnSeedAndEpoch) {
  for (const std::int64_t size : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < size; ++i) seen.insert(permute(i, size, 9, 2));
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
    EXPECT_GE(*seen.begin(), 0);
    EXPECT_LT(*seen.rbegin(), size);
  }
  int equal_seed = 0;
  int equal_epoch = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    equal_seed += permute(i, 1000, 9, 0) == permute(i, 1000, 10, 0) ? 1 : 0;
    equal_epoch += permute(i, 1000, 9, 0) == permute(i, 1000, 9, 1) ? 1 : 0;
  }
  // A fixed point has probability 1/1000 each: ten of them would be a one in 10^7 event.
  EXPECT_LT(equal_seed, 10);
  EXPECT_LT(equal_epoch, 10);
}

TEST(Dataset, AnEpochVisitsEveryWindowOnceAndNeverTouchesValidation) {
  const test::ScratchDirectory directory;
  std::string text;
  for (int i = 0; i < 211; ++i) text += static_cast<char>(i);
  const Tokens tokens(directory.write("windows", text));
  const Dataset data(tokens, 10, 256, 3, 0.1);
  EXPECT_EQ(data.training_windows(), 18);
  EXPECT_EQ(data.validation_windows(), 2);
  std::set<int> starts;
  std::int32_t in[10];
  std::int32_t out[10];
  for (std::int64_t s = 0; s < data.training_windows(); ++s) {
    data.training(s, in, out);
    starts.insert(in[0]);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(out[i], in[i] + 1);
    EXPECT_LT(out[9], 211 - 21);
  }
  EXPECT_EQ(starts.size(), 18U);
  data.training(18, in, out);  // wraps into the next epoch
  data.validation(1, in, out);
  EXPECT_LT(out[9], 211);
  EXPECT_THROW(Dataset(tokens, 300, 256, 3, 0), UsageError);
  EXPECT_THROW(Dataset(tokens, 110, 256, 3, 0.1), UsageError);
}

// Only one replica meets the token that the model does not have; every rank ends with the error.
TEST(Trainer, ATokenOutsideTheVocabularyEndsTheRunOnEveryRank) {
  const test::ScratchDirectory directory;
  TrainOptions options;
  options.model = test::write_model(directory, {.vocabulary = 600, .max_time = 8});
  options.data = directory.write("tokens.bin", llmc(20240520, 1, 100, 2, 100));  // up to 693
  options.batch = 2;
  options.validation_fraction = 0;
  options.threads = 1;
  std::atomic<int> ended = 0;
  test::run_ranks(2, [&](comm::Communicator& ranks) {
    const auto trainer = Trainer::create(make_plan(options, 2), ranks);
    try {
      for (int i = 0; i < 12; ++i) static_cast<void>(trainer->step());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("not below the model's vocabulary of 600"),
                std::string::npos);
      ++ended;
    }
  });
  EXPECT_EQ(ended, 2);
}

TEST(Trainer, AMissingDataFileIsOneLineOnEveryRank) {
  const test::ScratchDirectory directory;
  TrainOptions options;
  options.model = "byte-tiny";
  options.data = directory.path("none");
  const std::string message = test::usage_error_of([&] {
    test::run_ranks(2, [&](comm::Communicator& ranks) {
      static_cast<void>(Trainer::create(make_plan(options, 2), ranks));
    });
  });
  EXPECT_NE(message.find("cannot be opened"), std::string::npos);
}

}  // namespace
}  // namespace sinew::model
