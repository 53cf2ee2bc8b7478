// Attention forward: a block has 64 queries of one head; tiles of 64 keys pass through a ring of
// two stages in shared memory.
#include "kernels/attention_gpu.h"
#include "kernels/device/attention_tile.h"

namespace sinew::kernels {

constexpr int kForwardKeys = 64;
constexpr int kForwardStages = 2;

template <typename Out>
struct ForwardCall {
  AttentionShape shape;
  KeySpan keys;
  HeadView<const bf16> q;
  HeadView<const bf16> k;
  HeadView<const bf16> v;
  HeadView<Out> o;
  float* lse;
  float scale2;  // of scores, base-2 logarithms
};

// Of this lane's two rows: the largest score so far and this lane's part of the sum of weights.
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

GPU_FUNCTION float row_largest(float value) {
  value = fmaxf(value, gpu::shuffle_xor(value, 1));
  return fmaxf(value, gpu::shuffle_xor(value, 2));
}
GPU_FUNCTION float row_sum(float value) {
  value += gpu::shuffle_xor(value, 1);
  return value + gpu::shuffle_xor(value, 2);
}

// Scores become weights relative to the new largest score; sums so far shrink to it.
template <int kWidth>
GPU_FUNCTION void softmax_step(WarpSums<kForwardKeys>& scores, RunningSoftmax& softmax,
                               WarpSums<kWidth>& sums, const KeySpan& keys,
                               std::int64_t first_query, std::int64_t first_key, float scale2) {
  UNROLL for (int h = 0; h < 2; ++h) {
    const int seen = keys_seen(keys, first_query + own_row(h), first_key);
    if (seen < kForwardKeys) {
      UNROLL for (int n = 0; n < kForwardKeys / 8; ++n) {
        UNROLL for (int i = 0; i < 2; ++i) {
          if (n * 8 + own_column(i) >= seen) scores.block[n].v[2 * h + i] = -INFINITY;
        }
      }
    }
    float score = -INFINITY;
    UNROLL for (int n = 0; n < kForwardKeys / 8; ++n) {
      UNROLL for (int i = 0; i < 2; ++i) score = fmaxf(score, scores.block[n].v[2 * h + i]);
    }
    const float largest = fmaxf(softmax.largest[h], row_largest(score) * scale2);
    // A row that has seen no key yet has largest = -inf; any finite base gives weights of 0.
    const float base = largest == -INFINITY ? 0.0F : largest;
    const float shrink = gpu::exp2_approx(softmax.largest[h] - base);
    float sum = softmax.sum[h] * shrink;
    UNROLL for (int n = 0; n < kForwardKeys / 8; ++n) {
      UNROLL for (int i = 0; i < 2; ++i) {
        float& weight = scores.block[n].v[2 * h + i];
        weight = gpu::exp2_approx(fmaf(weight, scale2, -base));
        sum += weight;
      }
    }
    softmax.largest[h] = largest;
    softmax.sum[h] = sum;
    UNROLL for (int n = 0; n < kWidth / 8; ++n) {
      sums.block[n].v[2 * h] *= shrink;
      sums.block[n].v[2 * h + 1] *= shrink;
    }
  }
}

// What a result so far (first) and a new one contribute to their union.
struct Merge {
  float old_factor;
  float new_factor;
  float lse;
};
GPU_FUNCTION Merge merge_results(float old_lse, float new_lse) {
  const float largest = fmaxf(old_lse, new_lse);
  if (largest == -INFINITY) return {1, 0, -INFINITY};
  const float old_weight = gpu::exp_approx(old_lse - largest);
  const float new_weight = gpu::exp_approx(new_lse - largest);
  const float total = old_weight + new_weight;
  return {old_weight / total, new_weight / total, largest + logf(total)};
}

GPU_FUNCTION void put_output(bf16* place, float first, float second, const Merge& merge) {
  put_pair(place, first * merge.new_factor, second * merge.new_factor);
}
GPU_FUNCTION void put_output(float* place, float first, float second, const Merge& merge) {
  place[0] = place[0] * merge.old_factor + first * merge.new_factor;
  place[1] = place[1] * merge.old_factor + second * merge.new_factor;
}

template <int kWidth, typename Out>
GPU_FUNCTION void finish_rows(const ForwardCall<Out>& call, const HeadRows<Out>& o, float* lse,
                              std::int64_t first_query, const WarpSums<kWidth>& sums,
                              const RunningSoftmax& softmax) {
  constexpr bool kMerges = std::is_same_v<Out, float>;
  UNROLL for (int h = 0; h < 2; ++h) {
    const float sum = row_sum(softmax.sum[h]);
    const std::int64_t query = first_query + own_row(h);
    if (query >= o.rows) continue;
    const bool any = sum != 0;
    const float own_lse = any ? (softmax.largest[h] + log2f(sum)) / gpu::kLog2E : -INFINITY;
    Merge merge = {0, 1, own_lse};
    if constexpr (kMerges) merge = merge_results(lse[query], own_lse);
    const float inverse = any ? 1 / sum : 0.0F;
    UNROLL for (int n = 0; n < kWidth / 8; ++n) {
      const int column = n * 8 + own_column(0);
      if (column >= call.shape.head_dim) continue;
      const float* v = sums.block[n].v + 2 * h;
      put_output(o.row(query) + column, v[0] * inverse, v[1] * inverse, merge);
    }
    // The four lanes of a row must have read lse before one of them writes it.
    if constexpr (kMerges) REQUIRED(attention_lse_read, __syncwarp(0xfU << (gpu::lane() & ~3)));
    if (gpu::lane() % 4 == 0) lse[query] = merge.lse;
  }
}

template <int kWidth, typename Out>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward_kernel(const __grid_constant__ ForwardCall<Out> call) {
  constexpr int kTile = kForwardKeys * kWidth;
  SHARED_DYNAMIC(bf16, queries);
  bf16* const stages = queries + kOwnRows * kWidth;

  const AttentionShape& shape = call.shape;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const std::int64_t d = shape.head_dim;
  const auto q = head_rows(call.q, blockIdx.z, head, d, shape.time);
  const auto k = head_rows(call.k, blockIdx.z, kv_head, d, call.keys.time);
  const auto v = head_rows(call.v, blockIdx.z, kv_head, d, call.keys.time);
  const auto o = head_rows(call.o, blockIdx.z, head, d, shape.time);

  // The last tiles see most keys and begin first.
  const std::int64_t first_query = (gridDim.x - 1 - blockIdx.x) * std::int64_t{kOwnRows};
  const std::int64_t queries_end =
      first_query + kOwnRows < shape.time ? first_query + kOwnRows : shape.time;
  const std::int64_t seen = queries_end + call.keys.diagonal;
  const std::int64_t key_end = seen < call.keys.time ? seen : call.keys.time;
  const auto tiles =
      static_cast<int>(key_end <= 0 ? 0 : (key_end + kForwardKeys - 1) / kForwardKeys);

  const auto fill = [&](int tile) {
    if (tile < tiles) {
      bf16* stage = stages + tile % kForwardStages * 2 * kTile;
      fill_rows<kForwardKeys, kWidth>(stage, k, std::int64_t{tile} * kForwardKeys, d);
      fill_rows<kForwardKeys, kWidth>(stage + kTile, v, std::int64_t{tile} * kForwardKeys, d);
    }
    gpu::async_copy_commit();
  };

  WarpSums<kWidth> sums;
  RunningSoftmax softmax;
  if (tiles > 0) fill_rows<kOwnRows, kWidth>(queries, q, first_query, d);
  fill(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fill(tile + 1);
    REQUIRED(attention_keys_arrived, gpu::async_copy_wait<1>());
    REQUIRED(attention_keys_visible, __syncthreads());
    const bf16* stage = stages + tile % kForwardStages * 2 * kTile;
    WarpSums<kForwardKeys> scores;
    multiply_across_width<kForwardKeys, kWidth>(scores, queries, stage);
    softmax_step(scores, softmax, sums, call.keys, first_query, std::int64_t{tile} * kForwardKeys,
                 call.scale2);
    multiply_across_rows<kForwardKeys, kWidth>(sums, scores, stage + kTile);
    REQUIRED(attention_keys_used, __syncthreads());
  }
  float* lse = call.lse + (blockIdx.z * shape.heads + head) * shape.time;
  finish_rows<kWidth>(call, o, lse, first_query, sums, softmax);
}

namespace {

template <typename Out>
void launch_forward(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                    HeadView<const bf16> k, HeadView<const bf16> v, HeadView<Out> o, float* lse,
                    device::Stream& stream) {
  check_attention(shape);
  check_views(q, k, v, o);
  if (shape.batch == 0 || shape.time == 0 || shape.heads == 0) return;
  with_head_width(shape.head_dim, [&](auto width) {
    constexpr int kWidth = width();
    constexpr std::size_t kSharedBytes =
        (kOwnRows + kForwardStages * 2 * kForwardKeys) * kWidth * sizeof(bf16);
    const ForwardCall<Out> call = {shape, keys, q,   k,
                                   v,     o,    lse, score_scale(shape.head_dim) * gpu::kLog2E};
    device::launch(attention_forward_kernel<kWidth, Out>,
                   attention_blocks(shape.time, shape.heads, shape.batch, kSharedBytes), stream,
                   call);
  });
}

}  // namespace

void attention_forward(const AttentionShape& shape, HeadView<const bf16> q, HeadView<const bf16> k,
                       HeadView<const bf16> v, HeadView<bf16> o, float* lse,
                       device::Stream& stream) {
  launch_forward(shape, {shape.time, 0}, q, k, v, o, lse, stream);
}

void attention_forward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                               HeadView<const bf16> k, HeadView<const bf16> v, HeadView<float> o,
                               float* lse, device::Stream& stream) {
  if (keys.time == 0) return;
  launch_forward(shape, keys, q, k, v, o, lse, stream);
}

}  // namespace sinew::kernels
