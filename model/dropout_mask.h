// Dropout masks by place in the whole batch: an element's word is drawn by (seed, step, layer,
// place in the layer, sequence and position, channel), so that every layout and every recomputation
// drops the same elements. Dropped are the embedding and what attention and MLP add to the residual
// stream.
//
// Never does: store masks. Threads: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/dropout.h"

namespace sinew::model {

// Rows [begin, begin + count) of a rank's activations are rows first, first + 1, ... of the step's
// [sequences x T].
struct GlobalRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t first = 0;
};

enum class DropoutPlace : std::uint8_t { kAttention, kMlp };

class DropoutMask {
 public:
  DropoutMask() = default;
  // step: counted over the run.
  DropoutMask(double probability, std::uint64_t seed, std::int64_t step,
              std::vector<GlobalRows> rows)
      : probability_(probability), seed_(seed), step_(step), rows_(std::move(rows)) {}

  [[nodiscard]] bool active() const { return probability_ > 0; }
  [[nodiscard]] DropoutMask at(std::int64_t stream) const {
    DropoutMask mask = *this;
    mask.stream_ = stream;
    return mask;
  }
  // What a step adds to the streams of words that step 0 draws from.
  static std::uint64_t streams_before(std::int64_t step) {
    return static_cast<std::uint64_t>(step) << kStreamBits;
  }
  // layer: of the model.
  static std::int64_t stream_of(std::int64_t layer, DropoutPlace place) {
    return 1 + 2 * layer + static_cast<std::int64_t>(place);
  }
  static constexpr std::int64_t kEmbeddingStream = 0;

  // y = x with the dropped elements 0 and the others scaled, [rows, channels]; y may be x. The
  // gradient takes the same call.
  template <typename T>
  void apply(const T* x, T* y, std::int64_t channels, kernels::Threads threads) const {
    for (const GlobalRows& rows : rows_) {
      kernels::dropout<T>({.seed = seed_, .purpose = kPurpose, .stream = word_stream()},
                          probability_,
                          {.rows = rows.count,
                           .columns = channels,
                           .first_row = rows.first,
                           .first_column = 0,
                           .global_columns = channels},
                          x + rows.begin * channels, y + rows.begin * channels, threads);
    }
  }

 private:
  static constexpr std::uint32_t kPurpose = 0xD20F;
  static constexpr int kStreamBits = 20;  // layers are fewer than 2^16, two places in each
  [[nodiscard]] std::uint64_t word_stream() const {
    return streams_before(step_) + static_cast<std::uint64_t>(stream_);
  }

  double probability_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t step_ = 0;
  std::int64_t stream_ = 0;
  std::vector<GlobalRows> rows_;
};

}  // namespace sinew::model
