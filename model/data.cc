#include "model/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/philox.h"

namespace sinew::model {

namespace {

constexpr std::uint32_t kOrderPurpose = 0x0DA7A;

// PATH.idx of PATH.bin.
std::string index_path(const std::string& path) {
  const std::size_t stem = path.ends_with(".bin") ? path.size() - 4 : path.size();
  return path.substr(0, stem) + ".idx";
}

TokenRun read_file(const std::string& path, std::span<const std::byte> bytes,
                   const DataReading& reading) {
  TokenFormat format = parse_token_format(reading.format);
  if (bytes.empty()) throw UsageError(fmt::format("data '{}' is empty", path));
  if (format == TokenFormat::kAuto)
    format = find_token_format(path, bytes, std::filesystem::exists(index_path(path)));
  const bool is_text = format == TokenFormat::kText || format == TokenFormat::kJsonl;
  if (!is_text && !reading.tokenizer.empty()) {
    throw UsageError(
        fmt::format("data '{}' holds tokens: a tokenizer is for text and jsonl only", path));
  }
  std::optional<Bpe> bpe;
  if (!reading.tokenizer.empty()) bpe = Bpe::load(reading.tokenizer);
  const Bpe* tokenizer = bpe.has_value() ? &*bpe : nullptr;
  switch (format) {
    case TokenFormat::kLlmc:
      return read_llmc(bytes, path);
    case TokenFormat::kNanogpt:
      return read_nanogpt(bytes, path);
    case TokenFormat::kMegatron: {
      const MappedFile index(index_path(path));
      return read_megatron(index.bytes(), bytes, path);
    }
    case TokenFormat::kJsonl:
      return read_jsonl(bytes, tokenizer, path);
    case TokenFormat::kAuto:
    case TokenFormat::kText:
      return read_text(bytes, tokenizer);
  }
  __builtin_unreachable();
}

}  // namespace

Tokens::Tokens(const std::string& path, const DataReading& reading)
    : file_(path), where_(path), run_(read_file(path, file_.bytes(), reading)) {}

std::int64_t Tokens::token_limit() const {
  return run_.width == 1 ? 256 : run_.width == 2 ? 65536 : std::int64_t{1} << 31;
}

void Tokens::check(std::int64_t vocabulary) const {
  if (vocabulary >= token_limit()) return;
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min(run_.count, kPiece)));
  try {
    for (std::int64_t begin = 0; begin < run_.count; begin += kPiece)
      copy(begin, std::min(kPiece, run_.count - begin), vocabulary, piece.data());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void Tokens::copy(std::int64_t begin, std::int64_t count, std::int64_t vocabulary,
                  std::int32_t* target) const {
  CHECK_GE(begin, 0);
  CHECK_LE(begin + count, run_.count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, run_.tokens + (begin + i) * run_.width,
                static_cast<std::size_t>(run_.width));
    if (token >= static_cast<std::uint64_t>(vocabulary)) {
      throw Error(fmt::format(
          "data '{}': token {} at position {} is not below the model's vocabulary of {}", where_,
          token, begin + i, vocabulary));
    }
    target[i] = static_cast<std::int32_t>(token);
  }
}

std::int64_t permute(std::int64_t index, std::int64_t size, std::uint64_t seed,
                     std::int64_t epoch) {
  CHECK_GE(index, 0);
  CHECK_LT(index, size);
  const int half_bits = std::max(1, (ceil_log2(size) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const Philox random(seed, kOrderPurpose);
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const auto words = random.words(right, static_cast<std::uint64_t>(epoch) * 4 + round);
      const std::uint64_t mixed = left ^ ((std::uint64_t{words[1]} << 32 | words[0]) & mask);
      left = right;
      right = mixed;
    }
    value = left << half_bits | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

Dataset::Dataset(const Tokens& tokens, std::int64_t time, std::int64_t vocabulary,
                 std::uint64_t seed, double validation_fraction)
    : tokens_(tokens), time_(time), vocabulary_(vocabulary), seed_(seed) {
  const std::int64_t size = tokens.size();
  std::int64_t validation = 0;
  if (validation_fraction > 0) {
    validation = std::max(
        static_cast<std::int64_t>(static_cast<double>(size) * validation_fraction), time + 1);
  }
  const std::int64_t need = time + 1 + (validation > 0 ? time + 1 : 0);
  if (size < need) {
    throw UsageError(fmt::format(
        "data of {} tokens is too short: a sequence of {} needs {} for training{}", size, time,
        time + 1, validation > 0 ? fmt::format(" and {} for validation", time + 1) : ""));
  }
  validation = std::min(validation, size - (time + 1));
  validation_begin_ = size - validation;
  training_windows_ = (validation_begin_ - 1) / time;
  validation_windows_ = validation > 0 ? (validation - 1) / time : 0;
}

void Dataset::training(std::int64_t sequence, std::int32_t* tokens, std::int32_t* targets) const {
  const std::int64_t epoch = sequence / training_windows_;
  read(permute(sequence % training_windows_, training_windows_, seed_, epoch) * time_, tokens,
       targets);
}

void Dataset::validation(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const {
  CHECK_LT(window, validation_windows_);
  read(validation_begin_ + window * time_, tokens, targets);
}

void Dataset::read(std::int64_t begin, std::int32_t* tokens, std::int32_t* targets) const {
  tokens_.copy(begin, time_, vocabulary_, tokens);
  tokens_.copy(begin + 1, time_, vocabulary_, targets);
}

}  // namespace sinew::model
