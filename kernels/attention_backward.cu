// Attention backward in two kernels, so that nothing is added by atomics: one has 64 queries and
// passes over keys for d_q, the other has 64 keys and passes over the queries of all heads that
// read them for d_k and d_v. Scores are computed again from q, k and lse.
#include "kernels/attention_gpu.h"
#include "kernels/device/attention_tile.h"

namespace sinew::kernels {

constexpr int kBackwardOther =
    32;  // rows of the passing tiles: d_k, d_v and two scores fill the registers
constexpr int kBackwardStages = 2;

template <typename Out>
struct BackwardCall {
  AttentionShape shape;
  KeySpan keys;
  HeadView<const bf16> q;
  HeadView<const bf16> k;
  HeadView<const bf16> v;
  HeadView<const bf16> d_o;
  const float* lse;
  const float* row_dot;
  HeadView<Out> d_q;
  HeadView<Out> d_k;
  HeadView<Out> d_v;
  float scale;
};

template <typename Out>
GPU_FUNCTION const float* head_values(const BackwardCall<Out>& call, const float* values,
                                      std::int64_t head) {
  return values + (blockIdx.z * call.shape.heads + head) * call.shape.time;
}

// Scores and gradients of weights become weights and gradients of scores.
GPU_FUNCTION void score_gradient(float& score, float& d_weight, bool seen, float scale2, float lse2,
                                 float row_dot) {
  const float weight = seen ? gpu::exp2_approx(fmaf(score, scale2, -lse2)) : 0.0F;
  score = weight;
  d_weight = weight * (d_weight - row_dot);
}

template <int kWidth, typename Out>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_d_q_kernel(const __grid_constant__ BackwardCall<Out> call) {
  constexpr int kTile = kBackwardOther * kWidth;
  SHARED_DYNAMIC(bf16, own_q);
  bf16* const own_d_o = own_q + kOwnRows * kWidth;
  bf16* const stages = own_d_o + kOwnRows * kWidth;

  const AttentionShape& shape = call.shape;
  const std::int64_t head = blockIdx.y;
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const std::int64_t d = shape.head_dim;
  const auto q = head_rows(call.q, blockIdx.z, head, d, shape.time);
  const auto d_o = head_rows(call.d_o, blockIdx.z, head, d, shape.time);
  const auto k = head_rows(call.k, blockIdx.z, kv_head, d, call.keys.time);
  const auto v = head_rows(call.v, blockIdx.z, kv_head, d, call.keys.time);

  const std::int64_t first_query = (gridDim.x - 1 - blockIdx.x) * std::int64_t{kOwnRows};
  const std::int64_t queries_end =
      first_query + kOwnRows < shape.time ? first_query + kOwnRows : shape.time;
  const std::int64_t seen_end = queries_end + call.keys.diagonal;
  const std::int64_t key_end = seen_end < call.keys.time ? seen_end : call.keys.time;
  const auto tiles =
      static_cast<int>(key_end <= 0 ? 0 : (key_end + kBackwardOther - 1) / kBackwardOther);

  const auto fill = [&](int tile) {
    if (tile < tiles) {
      bf16* stage = stages + tile % kBackwardStages * 2 * kTile;
      fill_rows<kBackwardOther, kWidth>(stage, k, std::int64_t{tile} * kBackwardOther, d);
      fill_rows<kBackwardOther, kWidth>(stage + kTile, v, std::int64_t{tile} * kBackwardOther, d);
    }
    gpu::async_copy_commit();
  };

  float lse2[2];
  float row_dot[2];
  UNROLL for (int h = 0; h < 2; ++h) {
    const std::int64_t query = first_query + own_row(h);
    const bool inside = query < shape.time;
    lse2[h] = inside ? usable_lse2(head_values(call, call.lse, head)[query]) : INFINITY;
    row_dot[h] = inside ? head_values(call, call.row_dot, head)[query] : 0.0F;
  }

  WarpSums<kWidth> d_q;
  const float scale2 = call.scale * gpu::kLog2E;
  if (tiles > 0) {
    fill_rows<kOwnRows, kWidth>(own_q, q, first_query, d);
    fill_rows<kOwnRows, kWidth>(own_d_o, d_o, first_query, d);
  }
  fill(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fill(tile + 1);
    REQUIRED(attention_d_q_keys_arrived, gpu::async_copy_wait<1>());
    REQUIRED(attention_d_q_keys_visible, __syncthreads());
    const bf16* stage = stages + tile % kBackwardStages * 2 * kTile;
    WarpSums<kBackwardOther> scores;
    WarpSums<kBackwardOther> d_scores;
    multiply_across_width<kBackwardOther, kWidth>(scores, own_q, stage);
    multiply_across_width<kBackwardOther, kWidth>(d_scores, own_d_o, stage + kTile);
    int seen[2];
    UNROLL for (int h = 0; h < 2; ++h) {
      seen[h] = keys_seen(call.keys, first_query + own_row(h), std::int64_t{tile} * kBackwardOther);
    }
    UNROLL for (int n = 0; n < kBackwardOther / 8; ++n) {
      UNROLL for (int i = 0; i < 4; ++i) {
        score_gradient(scores.block[n].v[i], d_scores.block[n].v[i],
                       n * 8 + own_column(i) < seen[i / 2], scale2, lse2[i / 2], row_dot[i / 2]);
      }
    }
    multiply_across_rows<kBackwardOther, kWidth>(d_q, d_scores, stage);
    REQUIRED(attention_d_q_keys_used, __syncthreads());
  }
  put_rows<kWidth>(head_rows(call.d_q, blockIdx.z, head, d, shape.time), first_query, d, d_q,
                   call.scale);
}

template <int kWidth, typename Out>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_d_kv_kernel(const __grid_constant__ BackwardCall<Out> call) {
  constexpr int kTile = kBackwardOther * kWidth;
  SHARED_DYNAMIC(bf16, own_k);
  bf16* const own_v = own_k + kOwnRows * kWidth;
  bf16* const stages = own_v + kOwnRows * kWidth;
  SHARED(float, query_lse2, kBackwardStages* kBackwardOther);
  SHARED(float, query_dot, kBackwardStages* kBackwardOther);

  const AttentionShape& shape = call.shape;
  const std::int64_t kv_head = blockIdx.y;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t d = shape.head_dim;
  const auto k = head_rows(call.k, blockIdx.z, kv_head, d, call.keys.time);
  const auto v = head_rows(call.v, blockIdx.z, kv_head, d, call.keys.time);

  // The first query that sees the first key, then all after it; each head of the group in turn.
  const std::int64_t first_key = blockIdx.x * std::int64_t{kOwnRows};
  const std::int64_t wanted = first_key - call.keys.diagonal;
  const std::int64_t first_query = wanted <= 0 ? 0 : wanted / kBackwardOther * kBackwardOther;
  const std::int64_t head_tiles =
      first_query >= shape.time ? 0
                                : (shape.time - first_query + kBackwardOther - 1) / kBackwardOther;
  const auto tiles = static_cast<int>(head_tiles * group);

  const auto query_of = [&](int tile) { return first_query + tile % head_tiles * kBackwardOther; };
  const auto fill = [&](int tile) {
    if (tile < tiles) {
      const int slot = tile % kBackwardStages;
      bf16* stage = stages + slot * 2 * kTile;
      const std::int64_t head = kv_head * group + tile / head_tiles;
      fill_rows<kBackwardOther, kWidth>(stage, head_rows(call.q, blockIdx.z, head, d, shape.time),
                                        query_of(tile), d);
      fill_rows<kBackwardOther, kWidth>(
          stage + kTile, head_rows(call.d_o, blockIdx.z, head, d, shape.time), query_of(tile), d);
      if (threadIdx.x < kBackwardOther) {
        const std::int64_t query = query_of(tile) + threadIdx.x;
        const bool inside = query < shape.time;
        const int place = slot * kBackwardOther + static_cast<int>(threadIdx.x);
        query_lse2[place] =
            inside ? usable_lse2(head_values(call, call.lse, head)[query]) : INFINITY;
        query_dot[place] = inside ? head_values(call, call.row_dot, head)[query] : 0.0F;
      }
    }
    gpu::async_copy_commit();
  };

  WarpSums<kWidth> d_k;
  WarpSums<kWidth> d_v;
  const float scale2 = call.scale * gpu::kLog2E;
  if (tiles > 0) {
    fill_rows<kOwnRows, kWidth>(own_k, k, first_key, d);
    fill_rows<kOwnRows, kWidth>(own_v, v, first_key, d);
  }
  fill(0);
  for (int tile = 0; tile < tiles; ++tile) {
    fill(tile + 1);
    REQUIRED(attention_d_kv_queries_arrived, gpu::async_copy_wait<1>());
    REQUIRED(attention_d_kv_queries_visible, __syncthreads());
    const int slot = tile % kBackwardStages;
    const bf16* stage = stages + slot * 2 * kTile;
    WarpSums<kBackwardOther> scores;
    WarpSums<kBackwardOther> d_scores;
    multiply_across_width<kBackwardOther, kWidth>(scores, own_k, stage);
    multiply_across_width<kBackwardOther, kWidth>(d_scores, own_v, stage + kTile);
    int blind[2];
    UNROLL for (int h = 0; h < 2; ++h) {
      blind[h] = queries_blind(call.keys, query_of(tile), first_key + own_row(h));
    }
    UNROLL for (int n = 0; n < kBackwardOther / 8; ++n) {
      UNROLL for (int i = 0; i < 4; ++i) {
        const int column = n * 8 + own_column(i);
        const int place = slot * kBackwardOther + column;
        score_gradient(scores.block[n].v[i], d_scores.block[n].v[i], column >= blind[i / 2], scale2,
                       query_lse2[place], query_dot[place]);
      }
    }
    multiply_across_rows<kBackwardOther, kWidth>(d_v, scores, stage + kTile);
    multiply_across_rows<kBackwardOther, kWidth>(d_k, d_scores, stage);
    REQUIRED(attention_d_kv_queries_used, __syncthreads());
  }
  put_rows<kWidth>(head_rows(call.d_k, blockIdx.z, kv_head, d, call.keys.time), first_key, d, d_k,
                   call.scale);
  put_rows<kWidth>(head_rows(call.d_v, blockIdx.z, kv_head, d, call.keys.time), first_key, d, d_v,
                   1.0F);
}

// A warp for each row.
template <typename T>
__global__ void __launch_bounds__(kStrideThreads)
    attention_row_dot_kernel(const __grid_constant__ AttentionShape shape,
                             const __grid_constant__ HeadView<const T> o,
                             const __grid_constant__ HeadView<const bf16> d_o, float* row_dot) {
  const std::int64_t rows = shape.batch * shape.heads * shape.time;
  const std::int64_t step = gpu::grid_threads() / gpu::kWarp;
  for (std::int64_t row = gpu::grid_thread() / gpu::kWarp; row < rows; row += step) {
    const std::int64_t batch = row / (shape.heads * shape.time);
    const std::int64_t head = row / shape.time % shape.heads;
    const std::int64_t time = row % shape.time;
    const T* x = head_rows(o, batch, head, shape.head_dim, shape.time).row(time);
    const bf16* y = head_rows(d_o, batch, head, shape.head_dim, shape.time).row(time);
    float sum = 0;
    for (int i = gpu::lane(); i < shape.head_dim; i += gpu::kWarp) {
      sum += gpu::widen(x[i]) * gpu::widen(y[i]);
    }
    sum = gpu::warp_all(sum, gpu::Sum{});
    if (gpu::lane() == 0) row_dot[row] = sum;
  }
}

namespace {

template <typename Out>
void launch_backward(BackwardCall<Out> call, device::Stream& stream) {
  const AttentionShape& shape = call.shape;
  check_attention(shape);
  check_views(call.q, call.k, call.v, call.d_o, call.d_q, call.d_k, call.d_v);
  if (shape.batch == 0 || shape.heads == 0) return;
  call.scale = score_scale(shape.head_dim);
  with_head_width(shape.head_dim, [&](auto width) {
    constexpr int kWidth = width();
    constexpr std::size_t kSharedBytes =
        (2 * kOwnRows + kBackwardStages * 2 * kBackwardOther) * kWidth * sizeof(bf16);
    if (shape.time > 0) {
      device::launch(attention_d_q_kernel<kWidth, Out>,
                     attention_blocks(shape.time, shape.heads, shape.batch, kSharedBytes), stream,
                     call);
    }
    if (call.keys.time > 0) {
      device::launch(attention_d_kv_kernel<kWidth, Out>,
                     attention_blocks(call.keys.time, shape.kv_heads, shape.batch, kSharedBytes),
                     stream, call);
    }
  });
}

}  // namespace

template <typename T>
void attention_row_dot(const AttentionShape& shape, HeadView<const T> o, HeadView<const bf16> d_o,
                       float* row_dot, device::Stream& stream) {
  const std::int64_t rows = shape.batch * shape.heads * shape.time;
  if (rows == 0) return;
  device::launch(attention_row_dot_kernel<T>, stride_shape(rows * gpu::kWarp), stream, shape, o,
                 d_o, row_dot);
}

void attention_backward(const AttentionShape& shape, HeadView<const bf16> q, HeadView<const bf16> k,
                        HeadView<const bf16> v, HeadView<const bf16> o, const float* lse,
                        HeadView<const bf16> d_o, HeadView<bf16> d_q, HeadView<bf16> d_k,
                        HeadView<bf16> d_v, float* row_dot, device::Stream& stream) {
  attention_row_dot<bf16>(shape, o, d_o, row_dot, stream);
  launch_backward<bf16>({shape, {shape.time, 0}, q, k, v, d_o, lse, row_dot, d_q, d_k, d_v, 0},
                        stream);
}

void attention_backward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                                HeadView<const bf16> k, HeadView<const bf16> v, const float* lse,
                                const float* row_dot, HeadView<const bf16> d_o, HeadView<float> d_q,
                                HeadView<float> d_k, HeadView<float> d_v, device::Stream& stream) {
  launch_backward<float>({shape, keys, q, k, v, d_o, lse, row_dot, d_q, d_k, d_v, 0}, stream);
}

template void attention_row_dot<bf16>(const AttentionShape&, HeadView<const bf16>,
                                      HeadView<const bf16>, float*, device::Stream&);
template void attention_row_dot<float>(const AttentionShape&, HeadView<const float>,
                                       HeadView<const bf16>, float*, device::Stream&);

}  // namespace sinew::kernels
