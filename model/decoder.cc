#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "model/linear.h"
#include "model/norm.h"
#include "sched/base/check.h"

namespace sinew::model {

template <typename T>
Decoder<T>::Decoder(const Config& config, Stage<T>& stage, kernels::Threads threads)
    : config_(config),
      stage_(stage),
      threads_(threads),
      caches_(static_cast<std::size_t>(config.layers)) {
  CHECK(stage.has_embedding() && stage.has_head());
  const auto c = static_cast<std::size_t>(config.channels);
  const auto hidden = static_cast<std::size_t>(config.hidden_units());
  const auto kv = static_cast<std::size_t>(key_width());
  const auto time = static_cast<std::size_t>(config.max_time);
  for (Cache& cache : caches_) {
    cache.keys.resize(time * kv);
    cache.values.resize(time * kv);
  }
  x_.resize(c);
  norm_.resize(c);
  qkv_.resize(c + 2 * kv);
  attention_.resize(c);
  projected_.resize(c);
  up_.resize(config.is_llama() ? 2 * hidden : hidden);
  hidden_.resize(hidden);
  scores_.resize(time);
  logits_.resize(static_cast<std::size_t>(config.vocabulary));
}

template <typename T>
const T* Decoder<T>::feed(std::int32_t token) {
  CHECK_LT(length_, config_.max_time);
  CHECK_GE(token, 0);
  CHECK_LT(token, config_.vocabulary);
  const std::int64_t c = config_.channels;
  const EndNames names = end_names(config_);
  std::copy_n(stage_.weight(names.table) + token * c, c, x_.begin());
  if (names.positions != nullptr)
    kernels::add<T>(x_.data(), stage_.weight(names.positions) + length_ * c, c, threads_);
  for (std::size_t i = 0; i < caches_.size(); ++i) layer(i);
  ++length_;
  T mean;
  T rstd;
  norm_forward<T>({1, c}, x_.data(),
                  {stage_.weight(names.norm_weight),
                   names.norm_bias == nullptr ? nullptr : stage_.weight(names.norm_bias)},
                  config_.norm_epsilon, norm_.data(), {&mean, &rstd}, threads_);
  linear_forward<T>({1, c, config_.vocabulary, true}, norm_.data(), stage_.weight(names.head),
                    logits_.data(), threads_);
  return logits_.data();
}

template <typename T>
void Decoder<T>::multiply(std::int64_t in, std::int64_t out, const std::vector<T>& x, const T* w,
                          const T* bias, std::vector<T>& y) {
  linear_forward<T>({1, in, out, config_.is_llama()}, x.data(), w, y.data(), threads_);
  if (bias != nullptr) kernels::add<T>(y.data(), bias, out, threads_);
}

// Turns the token's queries and keys by its position.
template <typename T>
void Decoder<T>::turn() {
  const std::int64_t d = config_.head_dim();
  std::vector<T> cosine(static_cast<std::size_t>(d / 2));
  std::vector<T> sine(cosine.size());
  const auto position = static_cast<std::int32_t>(length_);
  kernels::rope_table<T>({&position, 1}, d, config_.rope_theta, cosine.data(), sine.data());
  const auto width = static_cast<std::int64_t>(qkv_.size());
  kernels::rope_forward<T>({1, 1, config_.heads + config_.key_value_heads(), d},
                           {qkv_.data(), width, width}, cosine.data(), sine.data(), threads_);
}

template <typename T>
void Decoder<T>::layer(std::size_t index) {
  const BlockWeights<const T> w = stage_.block_weights(0, index);
  const std::int64_t c = config_.channels;
  const std::int64_t kv = key_width();
  const std::int64_t hidden = config_.hidden_units();
  T mean;
  T rstd;
  norm_forward<T>({1, c}, x_.data(), {w.ln1_weight, w.ln1_bias}, config_.norm_epsilon, norm_.data(),
                  {&mean, &rstd}, threads_);
  multiply(c, c + 2 * kv, norm_, w.qkv_weight, w.qkv_bias, qkv_);
  if (config_.is_llama()) turn();
  Cache& cache = caches_[index];
  std::copy_n(qkv_.data() + c, kv, cache.keys.data() + length_ * kv);
  std::copy_n(qkv_.data() + c + kv, kv, cache.values.data() + length_ * kv);
  attend(cache);
  multiply(c, c, attention_, w.out_weight, w.out_bias, projected_);
  kernels::add<T>(x_.data(), projected_.data(), c, threads_);

  norm_forward<T>({1, c}, x_.data(), {w.ln2_weight, w.ln2_bias}, config_.norm_epsilon, norm_.data(),
                  {&mean, &rstd}, threads_);
  multiply(c, static_cast<std::int64_t>(up_.size()), norm_, w.up_weight, w.up_bias, up_);
  if (config_.is_llama()) {
    kernels::swiglu_forward<T>({1, hidden, 2 * hidden}, up_.data(), up_.data() + hidden,
                               hidden_.data(), threads_);
  } else {
    kernels::gelu_forward<T>(up_.data(), hidden_.data(), hidden, threads_);
  }
  multiply(hidden, c, hidden_, w.down_weight, w.down_bias, projected_);
  kernels::add<T>(x_.data(), projected_.data(), c, threads_);
}

// One query against the keys of positions 0 to length_, head by head.
template <typename T>
void Decoder<T>::attend(const Cache& cache) {
  const std::int64_t c = config_.channels;
  const std::int64_t d = config_.head_dim();
  const T scale = 1 / std::sqrt(static_cast<T>(d));
  std::fill(attention_.begin(), attention_.end(), T{0});
  const std::int64_t kv = key_width();
  const std::int64_t queries_per_key = config_.heads / config_.key_value_heads();
  for (std::int64_t begin = 0; begin < c; begin += d) {
    const T* query = qkv_.data() + begin;
    const std::int64_t key_begin = begin / d / queries_per_key * d;
    T most = -INFINITY;
    for (std::int64_t t = 0; t <= length_; ++t) {
      const T* key = cache.keys.data() + t * kv + key_begin;
      T score = 0;
      for (std::int64_t i = 0; i < d; ++i) score += query[i] * key[i];
      scores_[static_cast<std::size_t>(t)] = score * scale;
      most = std::max(most, score * scale);
    }
    T total = 0;
    for (std::int64_t t = 0; t <= length_; ++t) {
      T& score = scores_[static_cast<std::size_t>(t)];
      score = std::exp(score - most);
      total += score;
    }
    T* out = attention_.data() + begin;
    for (std::int64_t t = 0; t <= length_; ++t) {
      const T* value = cache.values.data() + t * kv + key_begin;
      const T share = scores_[static_cast<std::size_t>(t)] / total;
      for (std::int64_t i = 0; i < d; ++i) out[i] += share * value[i];
    }
  }
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace sinew::model
