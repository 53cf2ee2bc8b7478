#include "model/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <vector>

#include "model/agree.h"
#include "model/tensor.h"
#include "sched/base/check.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/philox.h"
#include "sched/base/text.h"

namespace sinew::model {

namespace {

constexpr std::uint32_t kOrderPurpose = 0x0DA7A;

// PATH.idx of PATH.bin.
std::string index_path(const std::string& path) {
  const std::size_t stem = path.ends_with(".bin") ? path.size() - 4 : path.size();
  return path.substr(0, stem) + ".idx";
}

// A file's format and what reads it.
struct Reader {
  TokenFormat format = TokenFormat::kAuto;
  std::optional<Bpe> bpe;
  [[nodiscard]] const Bpe* tokenizer() const { return bpe.has_value() ? &*bpe : nullptr; }
};

Reader find_reader(const std::string& path, std::span<const std::byte> bytes,
                   const DataReading& reading) {
  Reader reader{parse_token_format(reading.format), std::nullopt};
  if (bytes.empty()) throw UsageError(fmt::format("data '{}' is empty", path));
  if (reader.format == TokenFormat::kAuto)
    reader.format = find_token_format(path, bytes, std::filesystem::exists(index_path(path)));
  const bool is_text = reader.format == TokenFormat::kText || reader.format == TokenFormat::kJsonl;
  if (!is_text && !reading.tokenizer.empty()) {
    throw UsageError(
        fmt::format("data '{}' holds tokens: a tokenizer is for text and jsonl only", path));
  }
  if (!reading.tokenizer.empty()) reader.bpe = Bpe::load(reading.tokenizer);
  return reader;
}

TokenRun read_with(const Reader& reader, std::span<const std::byte> bytes,
                   const std::string& path) {
  switch (reader.format) {
    case TokenFormat::kLlmc:
      return read_llmc(bytes, path);
    case TokenFormat::kNanogpt:
      return read_nanogpt(bytes, path);
    case TokenFormat::kMegatron: {
      const MappedFile index(index_path(path));
      return read_megatron(index.bytes(), bytes, path);
    }
    case TokenFormat::kJsonl:
      return read_jsonl(bytes, reader.tokenizer(), path);
    case TokenFormat::kAuto:
    case TokenFormat::kText:
      return read_text(bytes, reader.tokenizer());
  }
  __builtin_unreachable();
}

// Every rank converts its part; all of them map the whole.
TokenRun convert_together(comm::Communicator& host, const Reader& reader,
                          std::span<const std::byte> bytes, const std::string& path) {
  struct Made {
    std::int64_t count = 0;
    std::int64_t largest = 0;
  };
  std::vector<std::int32_t> tokens;
  agree(host, [&] {
    const auto part = part_of(reader.format, bytes, host.rank(), host.world());
    const auto before = bytes.first(static_cast<std::size_t>(part.data() - bytes.data()));
    tokens = convert(reader.format, part, reader.tokenizer(), path,
                     std::count(before.begin(), before.end(), std::byte{'\n'}));
  });
  Made mine{static_cast<std::int64_t>(tokens.size()), 0};
  if (!tokens.empty()) mine.largest = *std::max_element(tokens.begin(), tokens.end());
  std::vector<Made> all(static_cast<std::size_t>(host.world()));
  host.all_gather(&mine, all.data(), sizeof mine, DType::kU8);
  TokenRun run;
  std::int64_t begin = 0;
  std::int64_t largest = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (static_cast<int>(rank) < host.rank()) begin += all[rank].count;
    run.count += all[rank].count;
    largest = std::max(largest, all[rank].largest);
  }
  require_tokens(reader.format, run.count, path);
  run.width = width_for(static_cast<std::int32_t>(largest));
  run.shared = HostMemory(host, run.count * run.width);
  if (!tokens.empty()) write_tokens(tokens, run.width, run.shared.data() + begin * run.width);
  host.barrier();  // all parts are there
  run.tokens = run.shared.data();
  run.format = converted_format(reader.format, reader.tokenizer());
  return run;
}

TokenRun read_together(comm::Communicator& world, const MappedFile& file, const std::string& path,
                       const DataReading& reading) {
  Reader reader;
  TokenRun run;
  std::int32_t converts[2] = {0, 0};  // whether any rank does, whether any does not
  agree(world, [&] {
    reader = find_reader(path, file.bytes(), reading);
    if (!is_converted(reader.format, reader.tokenizer()))
      run = read_with(reader, file.bytes(), path);
    converts[is_converted(reader.format, reader.tokenizer()) ? 0 : 1] = 1;
  });
  world.all_reduce(converts, converts, 2, DType::kI32, ReduceOp::kMax);
  if (converts[0] == 0) return run;
  if (converts[1] != 0)
    throw UsageError(fmt::format("data '{}' is not the same file on all ranks", path));
  // A communicator that an exception passes fails its peers: the host's is gone before one does.
  std::exception_ptr wrong;
  {
    const auto host = ranks_of_host(world);
    try {
      run = convert_together(*host, reader, file.bytes(), path);
    } catch (const comm::Error&) {
      throw;
    } catch (const Error&) {
      wrong = std::current_exception();
    }
  }
  agree(world, [&] {
    if (wrong != nullptr) std::rethrow_exception(wrong);
  });
  return run;
}

MappedFile map_together(comm::Communicator& world, const std::string& path) {
  MappedFile file;
  agree(world, [&] { file = MappedFile(path); });
  return file;
}

}  // namespace

Tokens::Tokens(const std::string& path, const DataReading& reading)
    : file_(path),
      where_(path),
      run_(read_with(find_reader(path, file_.bytes(), reading), file_.bytes(), path)) {}

Tokens::Tokens(comm::Communicator& world, const std::string& path, const DataReading& reading)
    : file_(map_together(world, path)),
      where_(path),
      run_(read_together(world, file_, path, reading)) {}

std::uint64_t Tokens::fingerprint() const {
  constexpr std::int64_t kPieces = 64;
  constexpr std::int64_t kPiece = 512;
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min(kPiece, size())));
  const auto count = static_cast<std::int64_t>(piece.size());
  std::uint64_t sum = model::fingerprint(&run_.count, sizeof run_.count, 0, 1);
  for (std::int64_t i = 0; i < kPieces; ++i) {
    const std::int64_t begin = (size() - count) / (kPieces - 1) * i;
    copy(begin, count, token_limit(), piece.data());
    sum += model::fingerprint(piece.data(), sizeof piece[0], begin, count);
  }
  return sum;
}

DataOrder Dataset::order() const {
  return {time_, training_windows_, tokens_.size(), tokens_.fingerprint()};
}

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
        "data of {} is too short: a sequence of {} needs {} for training{}", counted(size, "token"),
        time, time + 1, validation > 0 ? fmt::format(" and {} for validation", time + 1) : ""));
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
