#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/layer_norm.h"
#include "model/linear.h"
#include "sched/base/check.h"

namespace sinew::model {

template <typename T>
Decoder<T>::Decoder(const Config& config, Stage<T>& stage, kernels::Threads threads)
    : config_(config),
      stage_(stage),
      threads_(threads),
      caches_(static_cast<std::size_t>(config.layers)) {
  CHECK(stage.chunks() == 1 && stage.has_embedding() && stage.has_head());
  const auto c = static_cast<std::size_t>(config.channels);
  const auto time = static_cast<std::size_t>(config.max_time);
  for (Cache& cache : caches_) {
    cache.keys.resize(time * c);
    cache.values.resize(time * c);
  }
  x_.resize(c);
  norm_.resize(c);
  qkv_.resize(3 * c);
  attention_.resize(c);
  projected_.resize(c);
  hidden_.resize(4 * c);
  scores_.resize(time);
  logits_.resize(static_cast<std::size_t>(config.vocabulary));
}

template <typename T>
const T* Decoder<T>::feed(std::int32_t token) {
  CHECK_LT(length_, config_.max_time);
  CHECK_GE(token, 0);
  CHECK_LT(token, config_.vocabulary);
  const std::int64_t c = config_.channels;
  const T* table = stage_.weight("wte.weight");
  const T* positions = stage_.weight("wpe.weight");
  for (std::int64_t i = 0; i < c; ++i)
    x_[static_cast<std::size_t>(i)] = table[token * c + i] + positions[length_ * c + i];
  for (std::size_t i = 0; i < caches_.size(); ++i) layer(i);
  ++length_;
  T mean;
  T rstd;
  kernels::layer_norm_forward<T>({1, c}, x_.data(), stage_.weight("ln_f.weight"),
                                 stage_.weight("ln_f.bias"), static_cast<T>(kNormEpsilon),
                                 norm_.data(), &mean, &rstd, threads_);
  linear_backward_input<T>({1, config_.vocabulary, c}, norm_.data(), table, logits_.data(),
                           threads_);
  return logits_.data();
}

template <typename T>
void Decoder<T>::layer(std::size_t index) {
  const BlockWeights<const T> w = stage_.block_weights(0, index);
  const std::int64_t c = config_.channels;
  const auto epsilon = static_cast<T>(kNormEpsilon);
  T mean;
  T rstd;
  kernels::layer_norm_forward<T>({1, c}, x_.data(), w.ln1_weight, w.ln1_bias, epsilon, norm_.data(),
                                 &mean, &rstd, threads_);
  linear_forward<T>({1, c, 3 * c}, norm_.data(), w.qkv_weight, qkv_.data(), threads_);
  kernels::add<T>(qkv_.data(), w.qkv_bias, 3 * c, threads_);
  Cache& cache = caches_[index];
  std::copy_n(qkv_.data() + c, c, cache.keys.data() + length_ * c);
  std::copy_n(qkv_.data() + 2 * c, c, cache.values.data() + length_ * c);
  attend(cache);
  linear_forward<T>({1, c, c}, attention_.data(), w.out_weight, projected_.data(), threads_);
  kernels::add<T>(projected_.data(), w.out_bias, c, threads_);
  kernels::add<T>(x_.data(), projected_.data(), c, threads_);

  kernels::layer_norm_forward<T>({1, c}, x_.data(), w.ln2_weight, w.ln2_bias, epsilon, norm_.data(),
                                 &mean, &rstd, threads_);
  linear_forward<T>({1, c, 4 * c}, norm_.data(), w.up_weight, hidden_.data(), threads_);
  kernels::add<T>(hidden_.data(), w.up_bias, 4 * c, threads_);
  kernels::gelu_forward<T>(hidden_.data(), hidden_.data(), 4 * c, threads_);
  linear_forward<T>({1, 4 * c, c}, hidden_.data(), w.down_weight, projected_.data(), threads_);
  kernels::add<T>(projected_.data(), w.down_bias, c, threads_);
  kernels::add<T>(x_.data(), projected_.data(), c, threads_);
}

// One query against the keys of positions 0 to length_, head by head.
template <typename T>
void Decoder<T>::attend(const Cache& cache) {
  const std::int64_t c = config_.channels;
  const std::int64_t d = config_.head_dim();
  const T scale = 1 / std::sqrt(static_cast<T>(d));
  std::fill(attention_.begin(), attention_.end(), T{0});
  for (std::int64_t begin = 0; begin < c; begin += d) {
    const T* query = qkv_.data() + begin;
    T most = -INFINITY;
    for (std::int64_t t = 0; t <= length_; ++t) {
      const T* key = cache.keys.data() + t * c + begin;
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
      const T* value = cache.values.data() + t * c + begin;
      const T share = scores_[static_cast<std::size_t>(t)] / total;
      for (std::int64_t i = 0; i < d; ++i) out[i] += share * value[i];
    }
  }
}

template class Decoder<float>;
template class Decoder<double>;

}  // namespace sinew::model
