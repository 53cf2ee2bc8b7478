// Data: token files (formats: token_formats.h), and the order in which a run sees them.
//
// Order: the training part is cut into windows of T + 1 tokens that overlap by one; an epoch visits
// every window once, in an order that depends on the seed and the epoch only. Sequence number s of
// the run (s = step * batch + index) is window permute(s) of epoch s / windows: independent of
// ranks and layout, resumable anywhere, wrapping.
//
// Threads: const objects may be shared.
#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "model/mapped_file.h"
#include "model/token_formats.h"

namespace sinew::model {

// How a data file is read.
struct DataReading {
  std::string format = "auto";  // of token_formats.h
  std::string tokenizer;        // folder of vocab.json and merges.txt; empty: bytes are tokens
};

class Tokens {
 public:
  // Throws UsageError in plain words: missing, empty, truncated, of another format.
  explicit Tokens(const std::string& path, const DataReading& reading = {});
  // The same on every rank of `world`, collective. What a file must be converted to is made once on
  // each machine: every rank converts its part into memory that all of them map. Formats whose
  // tokens are in the file are mapped and share the system's copy anyway. Throws on every rank what
  // is wrong on any.
  Tokens(comm::Communicator& world, const std::string& path, const DataReading& reading);

  [[nodiscard]] std::int64_t size() const { return run_.count; }
  // In words.
  [[nodiscard]] std::string_view format() const { return run_.format; }
  // No token is as large as this, whatever the file holds: 256, 65536, 2^31.
  [[nodiscard]] std::int64_t token_limit() const;
  // Throws UsageError naming the first token that is not below `vocabulary`. Reads the whole file
  // unless its width rules that out.
  void check(std::int64_t vocabulary) const;
  // Of the tokens' number and of some thousands of them, spread over the file: other data has
  // another one, unless it differs in none of these. Does not depend on the file's format.
  [[nodiscard]] std::uint64_t fingerprint() const;
  // target[i] = token begin + i, for begin + count <= size(). Throws Error naming the position when
  // a token is not below `vocabulary`.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t vocabulary,
            std::int32_t* target) const;

 private:
  MappedFile file_;
  std::string where_;
  TokenRun run_;
};

// What the order of a run's sequences depends on besides the seed.
struct DataOrder {
  std::int64_t time = 0;              // tokens of a sequence
  std::int64_t training_windows = 0;  // 0: no data
  std::int64_t tokens = 0;
  std::uint64_t fingerprint = 0;  // of the tokens
  friend bool operator==(const DataOrder&, const DataOrder&) = default;
};

// A bijection of [0, size) chosen by (seed, epoch): four rounds of a Feistel network over the next
// even power of two, walked until it lands inside.
[[nodiscard]] std::int64_t permute(std::int64_t index, std::int64_t size, std::uint64_t seed,
                                   std::int64_t epoch);

class Dataset {
 public:
  // The last `validation_fraction` of the tokens is kept for validation (at least one window when >
  // 0). Throws UsageError when a part is shorter than one window of time + 1 tokens.
  Dataset(const Tokens& tokens, std::int64_t time, std::int64_t vocabulary, std::uint64_t seed,
          double validation_fraction);

  [[nodiscard]] DataOrder order() const;
  [[nodiscard]] std::int64_t training_windows() const { return training_windows_; }
  [[nodiscard]] std::int64_t validation_windows() const { return validation_windows_; }

  // Sequence number `sequence` of the run: tokens and targets, [T] each.
  void training(std::int64_t sequence, std::int32_t* tokens, std::int32_t* targets) const;
  // Validation window `window`, in file order.
  void validation(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  void read(std::int64_t begin, std::int32_t* tokens, std::int32_t* targets) const;

  const Tokens& tokens_;
  std::int64_t time_;
  std::int64_t vocabulary_;
  std::uint64_t seed_;
  std::int64_t validation_begin_ = 0;
  std::int64_t training_windows_ = 0;
  std::int64_t validation_windows_ = 0;
};

}  // namespace sinew::model
