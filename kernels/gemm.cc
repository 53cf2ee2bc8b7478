#include "kernels/gemm.h"

#include "kernels/registry.h"
#include "sched/base/check.h"
#include "sched/base/partition.h"

namespace sinew::kernels {
namespace {

void check_shape(const GemmShape& shape) {
  CHECK_GE(shape.m, 0);
  CHECK_GE(shape.n, 0);
  CHECK_GE(shape.k, 0);
  CHECK_GE(shape.a_stride, shape.a_form == Form::kPlain ? shape.k : shape.m);
  CHECK_GE(shape.b_stride, shape.b_form == Form::kPlain ? shape.n : shape.k);
  CHECK_GE(shape.c_stride, shape.n);
}

// How C is cut into parts, one a thread: never along k, so no sum is split.
struct Grid {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

// Every part packs its share of A and of B, so the grid that reads the least, m / rows + n /
// columns per part, wins. A part below 2^21 operations (some 20 us) is not worth waking a thread
// for.
Grid choose_grid(const GemmShape& shape, int threads) {
  constexpr double kGrainFlops = 2097152;
  const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                       static_cast<double>(shape.k);
  const auto useful = static_cast<std::int64_t>(flops / kGrainFlops);
  const std::int64_t parts = useful < threads ? useful : threads;
  Grid best_grid;
  double least = 0;
  for (std::int64_t rows = 1; rows <= parts; ++rows) {
    if (parts % rows != 0) continue;
    const std::int64_t columns = parts / rows;
    const double read = static_cast<double>(shape.m) / static_cast<double>(rows) +
                        static_cast<double>(shape.n) / static_cast<double>(columns);
    if (rows == 1 || read < least) {
      best_grid = {rows, columns};
      least = read;
    }
  }
  return best_grid;
}

}  // namespace

template <typename T>
void gemm(const GemmShape& shape, T alpha, const T* a, const T* b, T beta, T* c, Threads threads) {
  check_shape(shape);
  CHECK_GE(threads.count, 1);
  const auto& version = best<GemmFunctions<T>>();
  const Grid grid = choose_grid(shape, threads.count);
  parallel_for(threads, grid.rows * grid.columns, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Part rows = partition(shape.m, grid.rows, i / grid.columns);
      const Part columns = partition(shape.n, grid.columns, i % grid.columns);
      GemmShape part = shape;
      part.m = rows.count;
      part.n = columns.count;
      const std::int64_t a_step = shape.a_form == Form::kPlain ? shape.a_stride : 1;
      const std::int64_t b_step = shape.b_form == Form::kPlain ? 1 : shape.b_stride;
      version.run(part, alpha, a + rows.offset * a_step, b + columns.offset * b_step, beta,
                  c + rows.offset * shape.c_stride + columns.offset);
    }
  });
}

template void gemm<float>(const GemmShape&, float, const float*, const float*, float, float*,
                          Threads);
template void gemm<double>(const GemmShape&, double, const double*, const double*, double, double*,
                           Threads);

}  // namespace sinew::kernels
