#include "model/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/elementwise.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {
// Keeps the coefficient finite at norm 0; PyTorch's value.
constexpr double kNormGuard = 1e-6;
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
  const std::int64_t pieces = options.zero == 0 ? 1 : parallel.grid().sizes().dp;
  const std::int64_t piece = options.zero == 0 ? 0 : parallel.coordinates().dp;
  for (const Unit& unit : stage.units()) {
    CHECK_EQ(unit.count % pieces, 0);
    CHECK_EQ(unit.begin % pieces, 0);
    const std::int64_t share = unit.count / pieces;
    owned_.push_back({unit.begin + piece * share, share, unit.begin / pieces});
  }
  first_moment_ = memory.optimizer.allocate<T>(stage.count() / pieces);
  second_moment_ = memory.optimizer.allocate<T>(stage.count() / pieces);
}

template <typename T>
void Optimizer<T>::reduce_gradients() {
  stage_.fold_tied_gradient();
  if (parallel_.tie() != nullptr) {
    for (const Parameter& p : stage_.parameters()) {
      if (p.layout.tied)
        sum_over(parallel_.tie(), stage_.gradients() + p.offset, p.slice.local_count());
    }
  }
  note_bad_gradients();
  comm::Communicator* data = parallel_.data();
  if (data == nullptr) return;
  if (options_.zero == 0) {
    sum_over(data, stage_.gradients(), stage_.count());
    return;
  }
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    data->reduce_scatter(stage_.gradients() + stage_.units()[i].begin,
                         stage_.gradients() + owned_[i].flat_begin, owned_[i].count, dtype_of_v<T>,
                         ReduceOp::kSum, {.algorithm = "direct"});
  }
}

// A sum over ranks spreads what is not finite to all of them: who computed it is known before only.
template <typename T>
void Optimizer<T>::note_bad_gradients() {
  bad_before_sum_.assign(names_.size(), false);
  for (const Parameter& p : stage_.parameters()) {
    const double sum =
        kernels::sum_of_squares(stage_.gradients() + p.offset, p.slice.local_count());
    if (!std::isfinite(sum)) bad_before_sum_[static_cast<std::size_t>(p.index)] = true;
  }
}

// Calls body(parameter, piece) for the part of each parameter that this rank owns, in model order
// of the stage.
template <typename T>
template <typename Body>
void Optimizer<T>::for_each_piece(Body&& body) const {
  for (const Parameter& p : stage_.parameters()) {
    for (const Owned& owned : owned_) {
      const std::int64_t begin = std::max(p.offset, owned.flat_begin);
      const std::int64_t end =
          std::min(p.offset + p.slice.local_count(), owned.flat_begin + owned.count);
      if (begin >= end) continue;
      body(p, Owned{begin, end - begin, owned.state_begin + begin - owned.flat_begin});
    }
  }
}

template <typename T>
std::vector<double> Optimizer<T>::square_sums() const {
  std::vector<double> sums(names_.size(), 0.0);
  const T* gradients = stage_.gradients();
  for_each_piece([&](const Parameter& p, const Owned& piece) {
    if (holds_for_all(p, parallel_.coordinates())) {
      sums[static_cast<std::size_t>(p.index)] +=
          kernels::sum_of_squares(gradients + piece.flat_begin, piece.count);
    }
  });
  const auto count = static_cast<std::int64_t>(sums.size());
  sum_over(parallel_.tensor(), sums.data(), count);
  sum_over(parallel_.pipeline(), sums.data(), count);
  if (options_.zero != 0) sum_over(parallel_.data(), sums.data(), count);
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
  for_each_piece([&](const Parameter& p, const Owned& piece) {
    adamw.weight_decay = p.decay ? options_.weight_decay : 0;
    kernels::adamw<T>(adamw, piece.count, stage_.gradients() + piece.flat_begin,
                      stage_.weights() + piece.flat_begin, first_moment_ + piece.state_begin,
                      second_moment_ + piece.state_begin, threads_);
  });
  if (options_.zero == 0 || parallel_.data() == nullptr) return report;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    parallel_.data()->all_gather(stage_.weights() + owned_[i].flat_begin,
                                 stage_.weights() + stage_.units()[i].begin, owned_[i].count,
                                 dtype_of_v<T>);
  }
  return report;
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
  std::int32_t lowest = bad_before_sum_[bad] ? parallel_.rank() : nobody;
  parallel_.world().all_reduce(&lowest, &lowest, 1, DType::kI32, ReduceOp::kMin);
  report.bad_rank = lowest == nobody ? -1 : lowest;
  report.bad_tensor = names_[bad];
}

template class Optimizer<float>;
template class Optimizer<double>;

}  // namespace sinew::model
