#include "model/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/philox.h"

namespace sinew::model {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::int64_t kHeaderBytes = 1024;  // llm.c: 256 int32
constexpr std::int32_t kMagicU16 = 20240520;
constexpr std::int32_t kMagicU32 = 20240801;
constexpr std::uint32_t kOrderPurpose = 0x0DA7A;

}  // namespace

Tokens::Tokens(const std::string& path) : file_(path) { open(file_.bytes(), path); }

Tokens::Tokens(std::span<const std::byte> bytes, const std::string& where) { open(bytes, where); }

void Tokens::open(std::span<const std::byte> bytes, const std::string& where) {
  where_ = where;
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (size == 0) throw UsageError(fmt::format("data '{}' is empty", where));
  std::int32_t header[3] = {};
  std::memcpy(header, bytes.data(),
              static_cast<std::size_t>(std::min<std::int64_t>(size, sizeof header)));
  const std::int32_t magic = header[0];
  if (magic != kMagicU16 && magic != kMagicU32) {
    if (where.ends_with(".bin")) {
      throw UsageError(fmt::format(
          "data '{}': magic {} is no token file's; legal: {} (llm.c, uint16), {} (llm.c, uint32), "
          "or a text file of another name",
          where, magic, kMagicU16, kMagicU32));
    }
    tokens_ = bytes.data();
    count_ = size;
    width_ = 1;
    format_ = "bytes";
    return;
  }
  const std::int32_t version = magic == kMagicU16 ? 1 : 7;
  width_ = magic == kMagicU16 ? 2 : 4;
  format_ = magic == kMagicU16 ? "llm.c uint16" : "llm.c uint32";
  if (size < kHeaderBytes) {
    throw UsageError(fmt::format("data '{}': {} bytes, shorter than llm.c's header of {}", where,
                                 size, kHeaderBytes));
  }
  if (header[1] != version) {
    throw UsageError(fmt::format("data '{}': llm.c version {} for magic {}; legal value: {}", where,
                                 header[1], magic, version));
  }
  count_ = header[2];
  const std::int64_t expected = kHeaderBytes + count_ * width_;
  if (count_ < 0 || expected != size) {
    throw UsageError(
        fmt::format("data '{}': the header promises {} tokens ({} bytes), the file has {} bytes",
                    where, count_, expected, size));
  }
  tokens_ = bytes.data() + kHeaderBytes;
}

std::int64_t Tokens::token_limit() const {
  return width_ == 1 ? 256 : width_ == 2 ? 65536 : std::int64_t{1} << 31;
}

void Tokens::check(std::int64_t vocabulary) const {
  if (vocabulary >= token_limit()) return;
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min(count_, kPiece)));
  try {
    for (std::int64_t begin = 0; begin < count_; begin += kPiece)
      copy(begin, std::min(kPiece, count_ - begin), vocabulary, piece.data());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void Tokens::copy(std::int64_t begin, std::int64_t count, std::int64_t vocabulary,
                  std::int32_t* target) const {
  CHECK_GE(begin, 0);
  CHECK_LE(begin + count, count_);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, tokens_ + (begin + i) * width_, static_cast<std::size_t>(width_));
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
