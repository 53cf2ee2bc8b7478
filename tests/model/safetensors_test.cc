// The tensor file: what is written is read, and no bytes whatever do harm.
#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "sched/base/philox.h"
#include "tests/model/support.h"

namespace sinew::model {
namespace {

std::string file_of(const std::string& json, const std::string& data) {
  const std::uint64_t length = json.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + json + data;
}

std::string refusal(const std::string& file) {
  return test::usage_error_of([&] {
    static_cast<void>(
        parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "here"));
  });
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  std::vector<NamedTensor> tensors = {{"b", {.dtype = DType::kF64, .shape = {2, 3}}},
                                      {"a", {.dtype = DType::kBf16, .shape = {}}},
                                      {"none", {.dtype = DType::kF32, .shape = {0, 5}}}};
  const std::string header = make_safetensors_header(tensors, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 8, 0U);
  const std::string file = header + std::string(50, 'x');
  const SafetensorsIndex index =
      parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "here");
  EXPECT_EQ(index.metadata.at("format"), "pt");
  ASSERT_EQ(index.tensors.size(), 3U);
  EXPECT_EQ(index.tensors.at("b").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(index.tensors.at("b").end, 48);
  EXPECT_EQ(index.tensors.at("a").begin, 48);
  EXPECT_EQ(index.tensors.at("none").count(), 0);
}

TEST(Safetensors, EachFaultIsNamed) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(refusal(file_of(good, std::string(8, 'x'))), "");
  struct Row {
    std::string file;
    const char* message;  // part of it
  };
  const std::string eight(8, 'x');
  const std::vector<Row> table = {
      {"", "shorter than"},
      {std::string(8, '\xff'), "header of"},
      {file_of("[]", ""), "no JSON object"},
      {file_of("{", ""), "no JSON object"},
      {file_of(R"({"a":{}})", ""), "lacks dtype"},
      {file_of(R"({"a":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})", eight), "legal values"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight),
       "out of range"},
      {file_of(R"({"a":{"dtype":"F32","shape":[99999999,99999999],"data_offsets":[0,8]}})", eight),
       "out of range"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})", eight), "lie outside"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight), "lie outside"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", eight),
       "bytes for shape"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", eight), "hole"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", eight), "end at"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               eight),
       "overlap"},
      {file_of(R"({"__metadata__":3})", ""), "__metadata__"},
  };
  for (const Row& row : table) {
    const std::string message = refusal(row.file);
    EXPECT_NE(message.find(row.message), std::string::npos) << row.file << ": '" << message << "'";
  }
}

// Seeded mutations of a good file: read or refused, nothing else. The fuzzer goes on from here.
TEST(Safetensors, AnyChangedBytesAreReadOrRefused) {
  std::vector<NamedTensor> tensors = {{"a", {.dtype = DType::kF32, .shape = {2, 3}}},
                                      {"b", {.dtype = DType::kI64, .shape = {1}}}};
  const std::string good = make_safetensors_header(tensors, {{"k", "v"}}) + std::string(32, 'x');
  const Philox random(99, 1);
  int refused = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    std::string file = good;
    const auto words = random.words(i);
    file[words[0] % file.size()] = static_cast<char>(words[1]);
    file[words[2] % file.size()] = static_cast<char>(words[3]);
    if (i % 3 == 0) file.resize(words[1] % (file.size() + 1));
    if (!refusal(file).empty()) ++refused;
  }
  EXPECT_GT(refused, 1000);
}

TEST(Fingerprint, PartsAddUpAndEveryBitCounts) {
  const Philox random(3, 1);
  std::vector<float> data;
  for (std::uint64_t i = 0; i < 100; ++i) data.push_back(random.normal(i));
  const std::uint64_t whole = fingerprint(data.data(), sizeof(float), 0, 100);
  EXPECT_EQ(fingerprint(data.data(), sizeof(float), 0, 37) +
                fingerprint(data.data() + 37, sizeof(float), 37, 63),
            whole);
  for (std::size_t i = 0; i < 100; ++i) {
    for (unsigned bit = 0; bit < 32; ++bit) {
      const float before = data[i];
      std::uint32_t bits = 0;
      std::memcpy(&bits, &data[i], sizeof bits);
      bits ^= 1U << bit;
      std::memcpy(&data[i], &bits, sizeof bits);
      ASSERT_NE(fingerprint(data.data(), sizeof(float), 0, 100), whole);
      data[i] = before;
    }
  }
  std::swap(data[3], data[4]);  // the place counts, too
  EXPECT_NE(fingerprint(data.data(), sizeof(float), 0, 100), whole);
}

}  // namespace
}  // namespace sinew::model
