// Decoder: next-token logits of a whole model on one rank, one token at a time. Keys and values of
// earlier tokens are kept, so a token costs 2 flops a parameter and reads each weight once.
//
// Threads: one thread at a time. T is float or double.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/threads.h"
#include "model/config.h"
#include "model/stage.h"

namespace sinew::model {

template <typename T>
class Decoder {
 public:
  // `stage` holds the weights (the whole model, one tensor rank) and must outlive this.
  Decoder(const Config& config, Stage<T>& stage, kernels::Threads threads);

  // Tokens fed since the start or the last clear(); at most config.max_time.
  [[nodiscard]] std::int64_t length() const { return length_; }
  void clear() { length_ = 0; }
  // Appends a token; the logits of the one after it: [vocabulary], valid until the next call.
  const T* feed(std::int32_t token);

 private:
  struct Cache {
    std::vector<T> keys;  // [max_time, K d]
    std::vector<T> values;
  };
  void layer(std::size_t index);
  // y = x w + bias, for one row.
  void multiply(std::int64_t in, std::int64_t out, const std::vector<T>& x, const T* w,
                const T* bias, std::vector<T>& y);
  void turn();
  [[nodiscard]] std::int64_t key_width() const {
    return config_.key_value_heads() * config_.head_dim();
  }
  void attend(const Cache& cache);

  Config config_;
  Stage<T>& stage_;
  kernels::Threads threads_;
  std::int64_t length_ = 0;
  std::vector<Cache> caches_;  // by layer
  std::vector<T> x_;           // [C] residual stream
  std::vector<T> norm_;        // [C]
  std::vector<T> qkv_;         // [C + 2 K d]
  std::vector<T> attention_;   // [C]
  std::vector<T> projected_;   // [C]
  std::vector<T> up_;          // [hidden, twice for Llama]
  std::vector<T> hidden_;      // [hidden]
  std::vector<T> scores_;      // [max_time]
  std::vector<T> logits_;      // [V]
};

}  // namespace sinew::model
