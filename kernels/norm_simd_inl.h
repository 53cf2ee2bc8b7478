// The vector layer norm and RMS norm, which differ in the mean and the bias, compiled once per
// instruction set. Internal to layer_norm_simd.cc and rms_norm_simd.cc.
//
// Rows go in groups of kGroup through each pass: their sums are independent chains, weights are
// loaded once per group, and all passes but the first find the rows in the cache. Each row sum is
// one chain per lane. The next group is fetched during the last pass that only computes, since the
// hardware does not follow rows that begin all at once (8192 x 768 from memory: 2.1 ms without, 1.2
// ms with).
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

constexpr int kGroup = 4;

template <typename T>
HWY_INLINE void fetch_second_level(const T* x) {
  __builtin_prefetch(x, 0, 2);
}

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
  bool past_cache;
};

template <typename T>
HWY_INLINE void prefetch_row(const Forward<T>& a, std::int64_t row, std::int64_t c) {
  const std::int64_t at = row * a.channels + c;
  hwy::Prefetch(a.x + at);
  if (a.residual != nullptr) hwy::Prefetch(a.residual + at);
}

// Adds x to the residual where there is one, and returns the row's sum: of elements for layer norm,
// of squares for RMS norm. Row by row and in order, as the hardware expects of a reader of memory.
template <Norm kind, typename T>
HWY_INLINE float first_pass(const Forward<T>& a, std::int64_t row) {
  return sum_over<T>(a.channels, [&](auto io, std::int64_t c, const PackOf<T>& sum) SINEW_LAMBDA {
    const std::int64_t at = row * a.channels + c;
    // RMS norm has this pass and the next: each fetches half of the next row, every line twice.
    if constexpr (kind == Norm::kRms) prefetch_row(a, row + 1, c / 2);
    auto x = io.load(a.x + at);
    if (a.residual != nullptr) {
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
  });
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

template <Norm kind, int rows, typename T>
HWY_INLINE void normalize_pass(const Forward<T>& a, std::int64_t first, std::int64_t ahead) {
  const T* x = a.residual != nullptr ? a.residual : a.x;
  RowVectors<rows> center, scale;
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    if constexpr (kind == Norm::kLayer) center.of[r] = hn::Set(FloatTag(), a.mean[first + r]);
    scale.of[r] = hn::Set(FloatTag(), a.rstd[first + r]);
  });
  const auto body = [&](auto io, std::int64_t c) SINEW_LAMBDA {
    const auto w = io.load(a.weight + c);
    PackOf<T> b;
    if constexpr (kind == Norm::kLayer) b = io.load(a.bias + c);
    for_rows<rows>([&](auto r) SINEW_LAMBDA {
      const std::int64_t at = (first + r) * a.channels + c;
      // The rows of the next group, so that memory is read while these are normalised.
      prefetch_row(a, first + r + ahead, kind == Norm::kRms ? (a.channels + c) / 2 : c);
      if constexpr (kind == Norm::kLayer) {
        const auto function = [&](FloatVec v, FloatVec by, FloatVec plus) SINEW_LAMBDA {
          return hn::MulAdd(normed<kind>(v, center.of[r], scale.of[r]), by, plus);
        };
        io.store(apply(function, io.load(x + at), w, b), a.y + at);
      } else {
        const auto function = [&](FloatVec v, FloatVec by) SINEW_LAMBDA {
          return hn::Mul(normed<kind>(v, scale.of[r], scale.of[r]), by);
        };
        io.store(apply(function, io.load(x + at), w), a.y + at);
      }
    });
  };
  if (a.past_cache) {
    for_each_pack_past_cache<T>(a.channels, body);
  } else {
    for_each_pack<T>(a.channels, body);
  }
}

template <Norm kind, int rows, typename T>
HWY_INLINE void forward_group(const Forward<T>& a, std::int64_t first) {
  const auto count = static_cast<float>(a.channels);
  float sums[rows];
  for_rows<rows>([&](auto r) SINEW_LAMBDA { sums[r] = first_pass<kind>(a, first + r); });
  if constexpr (kind == Norm::kLayer) {
    for_rows<rows>([&](auto r) SINEW_LAMBDA { a.mean[first + r] = sums[r] / count; });
    squares_pass<rows>(a, first, sums);
  }
  for_rows<rows>([&](auto r) SINEW_LAMBDA {
    a.rstd[first + r] = 1.0F / std::sqrt(sums[r] / count + a.epsilon);
  });
  // One row after the other: memory takes a single stream of writes better than several.
  for (int r = 0; r < rows; ++r) normalize_pass<kind, 1>(a, first + r, rows);
}

// group(rows as a constant, first row), for groups of kGroup and then single rows.
template <class Group>
HWY_INLINE void for_each_group(std::int64_t rows, const Group& group) {
  std::int64_t r = 0;
  for (; r + kGroup <= rows; r += kGroup) group(std::integral_constant<int, kGroup>(), r);
  for (; r < rows; ++r) group(std::integral_constant<int, 1>(), r);
}

template <Norm kind, typename T>
HWY_INLINE void norm_forward(std::int64_t all_rows, Forward<T> a) {
  a.past_cache =
      a.x != a.y && rows_bypass_cache(a.y, all_rows, a.channels, a.residual != nullptr ? 3 : 1);
  if constexpr (kind == Norm::kLayer) {
    for_each_group(all_rows, [&](auto rows, std::int64_t r)
                                 SINEW_LAMBDA { forward_group<kind, rows()>(a, r); });
  } else {
    // No pass works on several rows, so that a group would only lengthen the way from a row's sums
    // to its normalisation.
    for (std::int64_t r = 0; r < all_rows; ++r) forward_group<kind, 1>(a, r);
  }
  if (a.past_cache) hwy::FlushStream();
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
      // 768 from memory: f32 4.4 ms there, 3.2 ms so; bf16 2.7 and 1.5 ms).
      fetch_second_level(a.x + at + rows * a.channels);
      fetch_second_level(a.d_y + at + rows * a.channels);
      if constexpr (kInput) fetch_second_level(a.d_x + at + rows * a.channels);
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
  for_each_group(all_rows, [&](auto rows, std::int64_t r) SINEW_LAMBDA {
    if (half != Half::kParameters && d_x_mode == Write::kAccumulate) {
      backward_group<kind, rows(), half, Write::kAccumulate>(a, r);
    } else {
      backward_group<kind, rows(), half, Write::kAssign>(a, r);
    }
  });
}

}  // namespace sinew::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
