#include "model/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/elementwise.h"
#include "kernels/mixed_adamw.h"
#include "model/agree.h"
#include "model/device_step.h"
#include "model/partial.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {
// Narrow gradients that are widened at once: they stay in a core's cache.
constexpr std::int64_t kWidened = 1 << 14;
}  // namespace

double LearningRate::at(std::int64_t step) const {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const std::int64_t rest = std::max<std::int64_t>(1, steps - warmup);
  const double done = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(rest));
  return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

template <typename T>
Optimizer<T>::Optimizer(Stage<T>& stage, Parallel& parallel, const OptimizerOptions& options,
                        std::vector<std::string> names, kernels::Threads threads, Memory& memory)
    : stage_(stage),
      parallel_(parallel),
      options_(options),
      names_(std::move(names)),
      threads_(threads) {
  std::int64_t owned = 0;
  for (const Piece& piece : stage.units().owned()) owned += piece.count;
  stage.units().with_gradients([&](const auto* gradients) {
    if constexpr (!std::is_same_v<decltype(gradients), const W*>)
      widened_ = memory.workspace.allocate<W>(kWidened);
  });
  agree(parallel.world(), [&] {
    if (!options_.offload.empty()) memory.optimizer.offload_to(options_.offload);
    first_moment_ = memory.optimizer.allocate<W>(owned);
    second_moment_ = memory.optimizer.allocate<W>(owned);
    if (kNarrow && updates_wide()) masters_ = memory.optimizer.allocate<W>(owned);
  });
}

template <typename T>
void Optimizer<T>::reduce_gradients() {
  stage_.finish_gradients(parallel_.tie());
  stage_.units().with_gradients([&](auto* gradients) {
    if constexpr (std::is_same_v<decltype(gradients), float*>) {
      if (device_ != nullptr) {
        queue_partial_sums(stage_.flat(), stage_.units().owned(), parallel_, gradients, threads_,
                           device_->packed());
        return;
      }
    }
    sum_partial_gradients(stage_.flat(), stage_.units().owned(), parallel_, gradients);
  });
}

template <typename T>
std::vector<double> Optimizer<T>::square_sums() const {
  std::vector<double> sums(names_.size(), 0.0);
  stage_.units().with_gradients([&](const auto* gradients) {
    for_each_piece([&](const Parameter& p, const Piece& piece) {
      if (holds_for_all(p, parallel_.coordinates())) {
        sums[static_cast<std::size_t>(p.index)] +=
            kernels::sum_of_squares(gradients + piece.gradient_begin, piece.count, threads_);
      }
    });
  });
  const auto count = static_cast<std::int64_t>(sums.size());
  sum_over(parallel_.tensor(), sums.data(), count);
  sum_over(parallel_.pipeline(), sums.data(), count);
  if (options_.zero != 0) sum_over(parallel_.shard(), sums.data(), count);
  return sums;
}

template <typename T>
StepReport Optimizer<T>::step(double learning_rate) {
  StepReport report;
  const std::vector<double> sums = square_sums();
  double total = 0;
  for (const double sum : sums) total += sum;
  report.gradient_norm = std::sqrt(total);
  if (!std::isfinite(report.gradient_norm)) {
    report.skipped = true;
    find_bad(sums, report);
    return report;
  }
  ++steps_taken_;
  const double coefficient =
      options_.clip > 0 ? std::min(1.0, options_.clip / (report.gradient_norm + kNormGuard)) : 1.0;
  kernels::AdamW adamw{.lr = learning_rate,
                       .beta1 = options_.beta1,
                       .beta2 = options_.beta2,
                       .epsilon = options_.epsilon,
                       .weight_decay = 0,
                       .gradient_scale = coefficient,
                       .step = steps_taken_};
  for_each_piece([&](const Parameter& p, const Piece& piece) {
    adamw.weight_decay = p.decay ? options_.weight_decay : 0;
    update(adamw, p, piece);
  });
  stage_.units().share_weights();
  return report;
}

template <typename T>
template <typename Body>
void Optimizer<T>::with_wide_gradients(const Piece& piece, Body&& body) {
  stage_.units().with_gradients([&](const auto* gradients) {
    if constexpr (std::is_same_v<decltype(gradients), const W*>) {
      body(gradients + piece.gradient_begin, piece);
    } else {
      for (std::int64_t done = 0; done < piece.count; done += kWidened) {
        const std::int64_t begin = piece.flat_begin + done;
        const Piece part = piece.within(begin, begin + kWidened);
        for (std::int64_t i = 0; i < part.count; ++i)
          widened_[i] = kernels::widen(gradients[part.gradient_begin + i]);
        body(static_cast<const W*>(widened_), part);
      }
    }
  });
}

template <typename T>
void Optimizer<T>::update(const kernels::AdamW& adamw, const Parameter& p, const Piece& piece) {
  if (!updates_wide()) return update_stochastically(adamw, p, piece);
  with_wide_gradients(piece, [&](const W* gradients, const Piece& part) {
    T* weights = stage_.weights() + part.weight_begin;
    W* first = first_moment_ + part.state_begin;
    W* second = second_moment_ + part.state_begin;
    if constexpr (kNarrow) {
      kernels::adamw_with_master(adamw, part.count, gradients, masters(part), weights, first,
                                 second, threads_);
    } else {
      kernels::adamw<T>(adamw, part.count, gradients, weights, first, second, threads_);
    }
  });
}

// Run by run of the logical tensor, since elements draw by their place in it. A stream for each
// step and parameter.
template <typename T>
void Optimizer<T>::update_stochastically(const kernels::AdamW& adamw, const Parameter& p,
                                         const Piece& piece) {
  if constexpr (kNarrow) {
    const auto stream = static_cast<std::uint64_t>(steps_taken_) * names_.size() +
                        static_cast<std::uint64_t>(p.index);
    const kernels::RandomStream random{options_.seed, kRoundingPurpose, stream};
    for_each_run_within(p, piece.flat_begin, piece.flat_begin + piece.count,
                        [&](std::int64_t flat, std::int64_t logical, std::int64_t count) {
                          const Piece run = piece.within(flat, flat + count);
                          with_wide_gradients(run, [&](const W* gradients, const Piece& part) {
                            kernels::adamw_stochastic(
                                adamw, random, logical + part.flat_begin - flat, part.count,
                                gradients, stage_.weights() + part.weight_begin,
                                first_moment_ + part.state_begin, second_moment_ + part.state_begin,
                                threads_);
                          });
                        });
  }
}

template <typename T>
void Optimizer<T>::find_bad(const std::vector<double>& sums, StepReport& report) const {
  const auto found =
      std::find_if(sums.begin(), sums.end(), [](double sum) { return !std::isfinite(sum); });
  // Finite sums whose total is not: the last tensor is as good as any.
  const auto bad =
      std::min<std::size_t>(static_cast<std::size_t>(found - sums.begin()), sums.size() - 1);
  // Every rank that computed it offers itself; when only the sum overflowed, nobody did.
  const std::int32_t nobody = parallel_.grid().world();
  std::int32_t lowest = nobody;
  const std::vector<bool> marked = stage_.units().bad();
  for (std::size_t i = 0; i < stage_.parameters().size(); ++i) {
    if (marked[i] && stage_.parameters()[i].index == static_cast<int>(bad))
      lowest = parallel_.rank();
  }
  parallel_.world().all_reduce(&lowest, &lowest, 1, DType::kI32, ReduceOp::kMin);
  report.bad_rank = lowest == nobody ? -1 : lowest;
  report.bad_tensor = names_[bad];
}

template class Optimizer<float>;
template class Optimizer<double>;
template class Optimizer<bf16>;

}  // namespace sinew::model
