// The vector layer norm and RMS norm, which differ in the mean and the bias, compiled once per
// instruction set. Internal to layer_norm_simd.cc and rms_norm_simd.cc.
//
// Rows go in groups through each pass: their sums are independent chains, weights are loaded once
// per group, and all passes but the first find the rows in the cache. Each row sum is one chain per
// lane. What comes next is fetched while the rows at hand are worked on.
#if defined(SINEW_KERNELS_NORM_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SINEW_KERNELS_NORM_SIMD_INL_H
#undef SINEW_KERNELS_NORM_SIMD_INL_H
#else
#define SINEW_KERNELS_NORM_SIMD_INL_H
#endif

#include <cmath>
#include <type_traits>

#include "kernels/layer_norm.h"
#include "kernels/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace sinew::kernels::HWY_NAMESPACE {

enum class Norm { kLayer, kRms };

constexpr int kForwardGroup = 4;

template <int rows>
struct RowVectors {
  FloatVec of[rows];
};

template <Norm kind>
HWY_INLINE FloatVec normed(FloatVec x, FloatVec mean, FloatVec rstd) {
  if constexpr (kind == Norm::kLayer) {
    return hn::Mul(hn::Sub(x, mean), rstd);
  } else {
    return hn::Mul(x, rstd);
  }
}

// The arrays of a forward pass. residual is null, or [rows, channels] to which x is added before
// the norm of the sum is taken. bias and mean are null for RMS norm.
template <typename T>
struct Forward {
  T* residual;
  const T* x;
  const T* weight;
  const T* bias;
  float epsilon;
  T* y;
  float* mean;
  float* rstd;
  std::int64_t channels;
};

// Adds x to the residual where there is one; returns sum with a pack of the row added: its elements
// for layer norm, their squares for RMS norm. Lines are fetched ahead where they come from memory;
// in the cache it would cost f32 4 to 15 % of the time.
template <Norm kind, bool from_memory, typename T, class Io>
HWY_INLINE PackOf<T> add_to_row_sum(const Forward<T>& a, Io io, std::int64_t row, std::int64_t c,
                                    const PackOf<T>& sum) {
  const std::int64_t at = row * a.channels + c;
  if constexpr (from_memory) fetch_ahead(a.x + at);
  auto x = io.load(a.x + at);
  if (a.residual != nullptr) {
    if constexpr (from_memory) fetch_ahead(a.residual + at);
    io.store(add_packs(io.load(a.residual + at), x), a.residual + at);
    x = io.load(a.residual + at);  // as it was rounded to T
  }
  // Past the end x is 0.
  if constexpr (kind == Norm::kLayer) {
    return add_packs(sum, x);
  } else {
    const auto add_square = [](FloatVec v, FloatVec to)
                                SINEW_LAMBDA { return hn::MulAdd(v, v, to); };
    return apply(add_square, x, sum);
  }
}

// The row sums of squared distances from the mean.
template <int rows, typename T>
HWY_INLINE void squares_pass(const Forward<T>& a, std::int64_t first, float* sums) {
  const T* x = a.residual != nullptr ? a.residual : a.x;
  RowVectors<rows> center;
  PackOf<T> squares[rows];
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    center.of[r] = hn::Set(FloatTag(), a.mean[first + r]);
    squares[r] = same_in_all<T>(0.0F);
  });
  for_each_pack<T>(a.channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const auto from_center = [&](FloatVec v) SINEW_LAMBDA { return hn::Sub(v, center.of[r]); };
      const auto add_square = [](FloatVec v, FloatVec sum)
                                  SINEW_LAMBDA { return hn::MulAdd(v, v, sum); };
      const std::int64_t at = (first + r) * a.channels + c;
      squares[r] = apply(add_square, io.keep(apply(from_center, io.load(x + at))), squares[r]);
    });
  });
  for_rows<rows>([&](auto r) SINEW_LAMBDA { sums[r] = sum_of(squares[r]); });
}

// y of a row whose statistics are known.
template <Norm kind, typename T>
struct NormalizedRow {
  NormalizedRow(const Forward<T>& a, std::int64_t row)
      : a(a),
        row(row),
        mean(hn::Set(FloatTag(), kind == Norm::kLayer ? a.mean[row] : 0.0F)),
        rstd(hn::Set(FloatTag(), a.rstd[row])) {}
  template <class Io>
  HWY_INLINE void write(Io io, std::int64_t c) const {
    const std::int64_t at = row * a.channels + c;
    const auto x = io.load((a.residual != nullptr ? a.residual : a.x) + at);
    const auto w = io.load(a.weight + c);
    if constexpr (kind == Norm::kLayer) {
      const auto function = [&](FloatVec v, FloatVec by, FloatVec plus) SINEW_LAMBDA {
        return hn::MulAdd(normed<kind>(v, mean, rstd), by, plus);
      };
      io.store(apply(function, x, w, io.load(a.bias + c)), a.y + at);
    } else {
      const auto function = [&](FloatVec v, FloatVec by)
                                SINEW_LAMBDA { return hn::Mul(normed<kind>(v, rstd, rstd), by); };
      io.store(apply(function, x, w), a.y + at);
    }
  }
  const Forward<T>& a;
  std::int64_t row;
  FloatVec mean;
  FloatVec rstd;
};

// sums: of the rows of a group, and what becomes of them.
template <Norm kind, int rows, typename T>
HWY_INLINE void row_statistics(const Forward<T>& a, std::int64_t first, float* sums) {
  const auto count = static_cast<float>(a.channels);
  if constexpr (kind == Norm::kLayer) {
    for_rows<rows>([&](auto r) SINEW_LAMBDA { a.mean[first + r] = sums[r] / count; });
    squares_pass<rows>(a, first, sums);
  }
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    a.rstd[first + r] = 1.0F / std::sqrt(sums[r] / count + a.epsilon);
  });
}

// Rows [begin, end), a multiple of `rows`. One loop writes a row and sums one of the next group, so
// that memory is read and written at the same time (f32 from memory against a loop each: 4096 x
// 2048 RMS norm 1.43 for 1.76 ms, with residual 2.95 for 3.45, 8192 x 768 layer norm with residual
// 2.2 for 2.7); and one row after the other: memory takes a single stream of writes better than
// several.
template <Norm kind, int rows, bool past_cache, typename T>
HWY_INLINE void forward_rows(const Forward<T>& a, std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  const auto out = [](auto io) SINEW_LAMBDA {
    if constexpr (past_cache) {
      return past_the_cache(io);
    } else {
      return io;
    }
  };
  float sums[rows];
  std::int64_t delay = 0;
  for (int r = 0; r < rows; ++r) {
    sums[r] =
        sum_over<T>(a.channels, [&](auto io, std::int64_t c, const PackOf<T>& sum) SINEW_LAMBDA {
          return add_to_row_sum<kind, past_cache>(a, io, begin + r, c, sum);
        });
  }
  std::int64_t first = begin;
  for (; first + rows < end; first += rows) {
    row_statistics<kind, rows>(a, first, sums);
    for (int r = 0; r < rows; ++r) {
      const NormalizedRow<kind, T> row(a, first + r);
      sums[r] =
          sum_over<T>(a.channels, [&](auto io, std::int64_t c, const PackOf<T>& sum) SINEW_LAMBDA {
            row.write(out(io), c);
            if constexpr (past_cache) delay = paced<T>(delay, 0);
            return add_to_row_sum<kind, past_cache>(a, io, first + rows + r, c + delay, sum);
          });
    }
  }
  row_statistics<kind, rows>(a, first, sums);
  for (int r = 0; r < rows; ++r) {
    const NormalizedRow<kind, T> row(a, first + r);
    for_each_pack<T>(a.channels,
                     [&](auto io, std::int64_t c) SINEW_LAMBDA { row.write(out(io), c); });
  }
}

template <Norm kind, typename T>
HWY_INLINE void norm_forward(std::int64_t all_rows, const Forward<T>& a) {
  // No pass of RMS norm works on several rows, so that a group would only lengthen the way from a
  // row's sum to its normalisation.
  constexpr int kRows = kind == Norm::kLayer ? kForwardGroup : 1;
  const std::int64_t in_groups = all_rows / kRows * kRows;
  if (a.x != a.y && rows_bypass_cache(a.y, all_rows, a.channels, a.residual != nullptr ? 3 : 1)) {
    forward_rows<kind, kRows, true>(a, 0, in_groups);
    forward_rows<kind, 1, true>(a, in_groups, all_rows);
    hwy::FlushStream();
  } else {
    forward_rows<kind, kRows, false>(a, 0, in_groups);
    forward_rows<kind, 1, false>(a, in_groups, all_rows);
  }
}

// The arrays of a backward pass; those that a half or RMS norm does not need are null.
template <typename T>
struct Backward {
  const T* d_y;
  const T* x;
  const T* weight;
  const float* mean;
  const float* rstd;
  T* d_x;
  float* d_weight;
  float* d_bias;
  std::int64_t channels;  // of a row
  std::int64_t count;     // channels worked on, from where the pointers point
};

enum class Half { kInput, kParameters, kBoth };

// Rows of f32 are fewer at a time, so that those of GPT-2 in three arrays stay in the first level
// between the passes; and d_x of the group is fetched in the first pass, which memory would spend
// idle. Of bf16 a group of rows is as long, and computes for as long as memory takes. 8192 x 768
// from memory: f32 3.65 ms with 4 rows and all fetched in the second pass, 3.25 with d_x in the
// first, 2.8 with 2 rows as well (3 the same); bf16 1.44 ms with 4 rows, 1.85 with 2, and 1.5 with
// d_x in the first pass.
template <typename T>
inline constexpr int kBackwardGroup = std::is_same_v<T, float> ? 2 : 4;
template <typename T>
inline constexpr bool kFetchesInBoth = std::is_same_v<T, float>;

// What the backward passes know of each row of a group.
template <int rows>
struct RowFactors {
  RowVectors<rows> mean;
  RowVectors<rows> rstd;
  RowVectors<rows> g_mean;   // mean over the row of g = d_y weight
  RowVectors<rows> gn_mean;  // and of g n, n the normalised x
};

template <Norm kind, int rows, typename T>
HWY_INLINE void gradient_means(const Backward<T>& a, std::int64_t first, RowFactors<rows>& f) {
  PackOf<T> sum[rows];
  PackOf<T> sum_normed[rows];
  for_rows<rows>([&](auto r) SINEW_LAMBDA { sum[r] = sum_normed[r] = same_in_all<T>(0.0F); });
  for_each_pack<T>(a.channels, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    const auto w = io.load(a.weight + c);
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const std::int64_t at = (first + r) * a.channels + c;
      const auto times = [](FloatVec p, FloatVec q) SINEW_LAMBDA { return hn::Mul(p, q); };
      const auto g = apply(times, io.load(a.d_y + at), w);  // 0 past the end
      if constexpr (kFetchesInBoth<T>) fetch_second_level(a.d_x + at);
      const auto add_product = [&](FloatVec v, FloatVec by, FloatVec plus) SINEW_LAMBDA {
        return hn::MulAdd(normed<kind>(v, f.mean.of[r], f.rstd.of[r]), by, plus);
      };
      if constexpr (kind == Norm::kLayer) sum[r] = add_packs(sum[r], g);
      sum_normed[r] = apply(add_product, io.load(a.x + at), g, sum_normed[r]);
    });
  });
  const float part = 1.0F / static_cast<float>(a.channels);
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    if constexpr (kind == Norm::kLayer) {
      f.g_mean.of[r] = hn::Set(FloatTag(), sum_of(sum[r]) * part);
    }
    f.gn_mean.of[r] = hn::Set(FloatTag(), sum_of(sum_normed[r]) * part);
  });
}

// d_x of one pack of one row; n is the normalised x.
template <Norm kind, Write mode, typename T, class Io>
HWY_INLINE void write_d_x(Io io, const PackOf<T>& d_y, const PackOf<T>& weight, const PackOf<T>& n,
                          FloatVec rstd, FloatVec g_mean, FloatVec gn_mean, T* d_x) {
  const auto centered = [&](FloatVec d, FloatVec w, FloatVec v) SINEW_LAMBDA {
    if constexpr (kind == Norm::kLayer) {
      return hn::NegMulAdd(v, gn_mean, hn::Sub(hn::Mul(d, w), g_mean));
    } else {
      return hn::NegMulAdd(v, gn_mean, hn::Mul(d, w));
    }
  };
  const auto value = apply(centered, d_y, weight, n);
  if constexpr (mode == Write::kAccumulate) {
    const auto added = [&](FloatVec v, FloatVec old)
                           SINEW_LAMBDA { return hn::MulAdd(v, rstd, old); };
    io.store(apply(added, value, io.load(d_x)), d_x);
  } else {
    io.store(apply([&](FloatVec v) SINEW_LAMBDA { return hn::Mul(v, rstd); }, value), d_x);
  }
}

template <Norm kind, int rows, Half half, Write mode, typename T>
HWY_INLINE void backward_group(const Backward<T>& a, std::int64_t first) {
  constexpr bool kInput = half != Half::kParameters;
  constexpr bool kParameters = half != Half::kInput;
  constexpr bool kBias = kParameters && kind == Norm::kLayer;
  RowFactors<rows> f;
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    if constexpr (kind == Norm::kLayer) f.mean.of[r] = hn::Set(FloatTag(), a.mean[first + r]);
    f.rstd.of[r] = hn::Set(FloatTag(), a.rstd[first + r]);
  });
  if constexpr (kInput) gradient_means<kind, rows>(a, first, f);
  for_each_pack<T>(a.count, [&](auto io, std::int64_t c) SINEW_LAMBDA {
    PackOf<T> weight, d_weight, d_bias;
    if constexpr (kInput) weight = io.load(a.weight + c);
    if constexpr (kParameters) d_weight = io.load(a.d_weight + c);
    if constexpr (kBias) d_bias = io.load(a.d_bias + c);
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const std::int64_t at = (first + r) * a.channels + c;
      const auto d_y = io.load(a.d_y + at);
      const auto to_normed = [&](FloatVec v) SINEW_LAMBDA {
        return normed<kind>(v, f.mean.of[r], f.rstd.of[r]);
      };
      const auto n = apply(to_normed, io.load(a.x + at));
      // The next group, into the second level: in the first it displaced the rows at work (8192 x
      // 768 from memory: bf16 2.7 ms there, 1.5 ms so).
      fetch_second_level(a.x + at + rows * a.channels);
      fetch_second_level(a.d_y + at + rows * a.channels);
      if constexpr (kInput && !kFetchesInBoth<T>)
        fetch_second_level(a.d_x + at + rows * a.channels);
      if constexpr (kParameters) {
        const auto add_product = [](FloatVec p, FloatVec q, FloatVec plus)
                                     SINEW_LAMBDA { return hn::MulAdd(p, q, plus); };
        d_weight = apply(add_product, d_y, n, d_weight);
      }
      if constexpr (kBias) d_bias = add_packs(d_bias, d_y);
      if constexpr (kInput) {
        write_d_x<kind, mode>(io, d_y, weight, n, f.rstd.of[r], f.g_mean.of[r], f.gn_mean.of[r],
                              a.d_x + at);
      }
    });
    if constexpr (kParameters) io.store(d_weight, a.d_weight + c);
    if constexpr (kBias) io.store(d_bias, a.d_bias + c);
  });
}

template <Norm kind, Half half, typename T>
HWY_INLINE void norm_backward(std::int64_t all_rows, const Backward<T>& a, Write d_x_mode) {
  const auto group = [&](auto rows, std::int64_t r) SINEW_LAMBDA {
    if (half != Half::kParameters && d_x_mode == Write::kAccumulate) {
      backward_group<kind, rows(), half, Write::kAccumulate>(a, r);
    } else {
      backward_group<kind, rows(), half, Write::kAssign>(a, r);
    }
  };
  constexpr int kRows = kBackwardGroup<T>;
  std::int64_t r = 0;
  for (; r + kRows <= all_rows; r += kRows) group(std::integral_constant<int, kRows>(), r);
  for (; r < all_rows; ++r) group(std::integral_constant<int, 1>(), r);
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
