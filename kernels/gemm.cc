#include "kernels/gemm.h"

#include <algorithm>

#include "kernels/accelerator.h"
#include "kernels/gemm_epilogue.h"
#include "kernels/registry.h"
#include "sched/base/check.h"
#include "sched/base/partition.h"

namespace sinew::kernels {
namespace {

template <typename In, typename Out>
void check_call(const GemmCall<In, Out>& call) {
  const GemmShape& s = call.shape;
  CHECK_GE(s.m, 0);
  CHECK_GE(s.n, 0);
  CHECK_GE(s.k, 0);
  CHECK_GE(s.a_stride, s.a_form == Form::kPlain ? s.k : s.m);
  CHECK_GE(s.c_stride, s.n);
  if (call.packed == nullptr) {
    CHECK_GE(s.b_stride, s.b_form == Form::kPlain ? s.n : s.k);
  } else {
    CHECK_EQ(call.packed->n(), s.n);
    CHECK_EQ(call.packed->k(), s.k);
  }
  const Activation f = call.epilogue.activation;
  const bool needs_input = f == Activation::kGeluGradient || f == Activation::kSiluGradient;
  CHECK_EQ(needs_input, call.epilogue.input.data != nullptr);
  CHECK(call.epilogue.gated.data == nullptr || f == Activation::kSiluGradient);
}

// How C is cut into parts, one a thread: never along k, so no sum is split.
struct Grid {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

// Every part packs its share of A and of B, so the grid whose parts pack the least wins. A counts
// three times: it is packed by itself, 0.9 cycles an element of f32, where B is packed inside the
// tiles, 0.1 cycles, or 0.6 where it is stored transposed; and the panels of fewer rows stay nearer
// to the core while columns pass by. A transposed A counts six times: of bf16, with 2 to 4 times as
// many columns as rows, cut columns cost 2 to 5 % more time than cut rows, and with 8 times as many
// the same. A part below 2^21 operations (some 20 us) is not worth waking a thread for.
Grid choose_grid(const GemmShape& shape, int threads) {
  constexpr double kGrainFlops = 2097152;
  const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                       static_cast<double>(shape.k);
  const auto parts =
      static_cast<std::int64_t>(std::min<double>(threads, std::max(1.0, flops / kGrainFlops)));
  Grid best_grid;
  double least = 0;
  const double cost_of_a = shape.a_form == Form::kPlain ? 3 : 6;
  for (std::int64_t rows = 1; rows <= parts; ++rows) {
    if (parts % rows != 0) continue;
    const std::int64_t columns = parts / rows;
    const double packed = cost_of_a * static_cast<double>(shape.m) / static_cast<double>(rows) +
                          static_cast<double>(shape.n) / static_cast<double>(columns);
    if (rows == 1 || packed < least) {
      best_grid = {rows, columns};
      least = packed;
    }
  }
  return best_grid;
}

// Part `index` of `count` columns, cut at multiples of `unit`.
Part column_part(std::int64_t count, std::int64_t unit, std::int64_t parts, std::int64_t index) {
  const Part units = partition((count + unit - 1) / unit, parts, index);
  const std::int64_t begin = std::min(units.offset * unit, count);
  return {begin, std::min((units.offset + units.count) * unit, count) - begin};
}

// The same product on rows x columns of C.
template <typename In, typename Out>
GemmCall<In, Out> part_of(const GemmCall<In, Out>& call, Part rows, Part columns) {
  GemmCall<In, Out> part = call;
  GemmShape& s = part.shape;
  s.m = rows.count;
  s.n = columns.count;
  part.a += rows.offset * (s.a_form == Form::kPlain ? s.a_stride : 1);
  if (call.packed == nullptr)
    part.b += columns.offset * (s.b_form == Form::kPlain ? 1 : s.b_stride);
  part.c += rows.offset * s.c_stride + columns.offset;
  part.epilogue = moved(call.epilogue, rows.offset, columns.offset);
  return part;
}

}  // namespace

template <typename In, typename Out>
void gemm(const GemmCall<In, Out>& call, Threads threads) {
  check_call(call);
  if constexpr (std::is_same_v<In, bf16>) {
    if (threads.accelerator != nullptr) return threads.accelerator->gemm(call);
  }
  CHECK_GE(threads.count, 1);
  const auto& version = best<GemmFunctions<In>>();
  const GemmShape& shape = call.shape;
  const Grid grid = choose_grid(shape, threads.count);
  parallel_for(threads, grid.rows * grid.columns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Part rows = partition(shape.m, grid.rows, i / grid.columns);
      const Part columns =
          column_part(shape.n, version.column_unit, grid.columns, i % grid.columns);
      if (rows.count == 0 || columns.count == 0) continue;
      const auto part = part_of(call, rows, columns);
      PackedColumns packed;
      if (call.packed != nullptr) packed = {call.packed->data(), shape.n, columns.offset};
      if constexpr (std::is_same_v<In, Out>)
        version.run(part, packed);
      else
        version.run_wide(part, packed);
    }
  });
}

template <typename T>
void gemm(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c, Threads threads) {
  gemm(GemmCall<T>{.shape = shape, .alpha = alpha, .a = a, .b = b, .beta = beta, .c = c}, threads);
}

template <typename T>
void gemm_batch(const GemmShape& shape, std::int64_t count, const BatchSteps& steps, Wide<T> alpha,
                const T* a, const T* b, Wide<T> beta, T* c, Threads threads) {
  CHECK(threads.accelerator == nullptr);
  CHECK_GE(count, 0);
  const auto& version = best<GemmFunctions<T>>();
  parallel_for(threads, count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const GemmCall<T> call{.shape = shape,
                             .alpha = alpha,
                             .a = a + i * steps.a,
                             .b = b + i * steps.b,
                             .beta = beta,
                             .c = c + i * steps.c};
      check_call(call);
      version.run(call, {});
    }
  });
}

template <typename T>
PackedB<T>::PackedB(const GemmShape& shape, const T* b, Threads threads)
    : n_(shape.n), k_(shape.k) {
  CHECK_GE(shape.b_stride, shape.b_form == Form::kPlain ? shape.n : shape.k);
  const auto& version = best<GemmFunctions<T>>();
  size_bytes_ = version.packed_bytes(n_, k_);
  data_ = allocate_scratch<std::byte>(size_bytes_);
  const std::int64_t units = (n_ + version.column_unit - 1) / version.column_unit;
  parallel_for(threads, units, 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * version.column_unit;
    version.pack(shape, b, first, std::min(end * version.column_unit, n_) - first, data_.get());
  });
}

template void gemm(const GemmShape&, float, const float*, const float*, float, float*, Threads);
template void gemm(const GemmShape&, double, const double*, const double*, double, double*,
                   Threads);
template void gemm(const GemmCall<float>&, Threads);
template void gemm(const GemmCall<double>&, Threads);
template void gemm(const GemmCall<bf16>&, Threads);
template void gemm(const GemmCall<bf16, float>&, Threads);
template void gemm_batch(const GemmShape&, std::int64_t, const BatchSteps&, float, const float*,
                         const float*, float, float*, Threads);
template void gemm_batch(const GemmShape&, std::int64_t, const BatchSteps&, double, const double*,
                         const double*, double, double*, Threads);
template void gemm_batch(const GemmShape&, std::int64_t, const BatchSteps&, float, const bf16*,
                         const bf16*, float, bf16*, Threads);
template class PackedB<float>;
template class PackedB<double>;
template class PackedB<bf16>;

}  // namespace sinew::kernels
