// A whole training step of one transformer layer (GPT-2's) and the loss, cut over two tensor ranks:
// forward, backward and AdamW, as one text that runs on the host and on the device. The sums over
// ranks go through the communicator, on the device over cuda_ipc.
#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "comm/communicator.h"
#include "comm/device/door.h"
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/mixed_adamw.h"
#include "tests/gpu/difference.h"
#include "tests/gpu/place.h"
#include "tests/gpu/races.h"

namespace sinew {
namespace {

using namespace testing;
using namespace kernels;

constexpr int kRanks = 2;
constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kTime = 12;
constexpr std::int64_t kWidth = 32;          // channels
constexpr std::int64_t kHeads = 4 / kRanks;  // of a rank
constexpr std::int64_t kHeadDim = 8;
constexpr std::int64_t kOwn = kHeads * kHeadDim;  // attention channels of a rank
constexpr std::int64_t kHidden = 4 * kWidth / kRanks;
constexpr std::int64_t kVocabulary = 40;
constexpr std::int64_t kColumns = kVocabulary / kRanks;
constexpr std::int64_t kAllRows = kBatch * kTime;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

// A parameter: f32 master, bf16 working copy, gradient and moments.
struct Weight {
  std::int64_t count;
  float* master;
  bf16* value;
  float* gradient;
  float* first;
  float* second;

  Weight(Place& p, std::int64_t n, std::uint32_t seed, float scale)
      : count(n),
        master(p.array<float>(size(n), seed, scale)),
        value(p.array<bf16>(size(n), seed, scale)),
        gradient(p.array<float>(size(n), 0, 0)),
        first(p.array<float>(size(n), 0, 0)),
        second(p.array<float>(size(n), 0, 0)) {}
  void step(Threads threads) const {
    adamw_with_master({.lr = 0.01, .weight_decay = 0.1}, count, gradient, master, value, first,
                      second, threads);
  }
};

// y = x w, d_x = d_y w^T, d_w += x^T d_y.
void product(std::int64_t in, std::int64_t out, const bf16* x, const Weight& w, bf16* y,
             Threads threads) {
  gemm<bf16, bf16>(
      {.shape =
           {.m = kAllRows, .n = out, .k = in, .a_stride = in, .b_stride = out, .c_stride = out},
       .a = x,
       .b = w.value,
       .c = y},
      threads);
}
void product_backward(std::int64_t in, std::int64_t out, const bf16* x, const Weight& w,
                      const bf16* d_y, bf16* d_x, Threads threads) {
  gemm<bf16, bf16>({.shape = {.m = kAllRows,
                              .n = in,
                              .k = out,
                              .b_form = Form::kTransposed,
                              .a_stride = out,
                              .b_stride = out,
                              .c_stride = in},
                    .a = d_y,
                    .b = w.value,
                    .c = d_x},
                   threads);
  gemm<bf16, float>({.shape = {.m = in,
                               .n = out,
                               .k = kAllRows,
                               .a_form = Form::kTransposed,
                               .a_stride = in,
                               .b_stride = out,
                               .c_stride = out},
                     .a = x,
                     .b = d_y,
                     .beta = 1,
                     .c = w.gradient},
                    threads);
}

HeadView<bf16> heads(bf16* x, std::int64_t offset, std::int64_t stride) {
  return {x + offset, kTime * stride, stride};
}
HeadView<const bf16> read_only(HeadView<bf16> x) { return {x.data, x.batch_stride, x.time_stride}; }

// Both ranks draw the same whole tables and keep their own; here each draws its own, by a seed of
// its rank, and what is replicated by a common one.
struct Layer {
  Layer(Place& p, int rank)
      : own(static_cast<std::uint32_t>(100 * (rank + 1))),
        norm_weight(p, kWidth, 1, 1.0F),
        norm_bias(p, kWidth, 2, 0.1F),
        qkv(p, kWidth * 3 * kOwn, own + 1, 0.2F),
        qkv_bias(p, 3 * kOwn, own + 2, 0.1F),
        out(p, kOwn * kWidth, own + 3, 0.2F),
        up(p, kWidth * kHidden, own + 4, 0.2F),
        down(p, kHidden * kWidth, own + 5, 0.1F),
        table(p, kWidth * kColumns, own + 6, 0.2F) {}
  [[nodiscard]] std::array<const Weight*, 8> weights() const {
    return {&norm_weight, &norm_bias, &qkv, &qkv_bias, &out, &up, &down, &table};
  }
  std::uint32_t own;
  Weight norm_weight, norm_bias, qkv, qkv_bias, out, up, down, table;
};

struct StepResult {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
  std::vector<std::vector<double>> masters;
};

// x: [rows, C] in; one step; what this rank ends with.
StepResult train_step(Place& p, comm::Communicator& ranks) {
  const Threads threads = p.threads();
  const int rank = ranks.rank();
  const Layer w(p, rank);
  const auto sum = [&](auto* data, std::int64_t count, DType dtype, ReduceOp op) {
    ranks.all_reduce(data, data, count, dtype, op, {.algorithm = "one_shot"});
  };
  const AttentionShape attention = {kBatch, kTime, kHeads, kHeads, kHeadDim};
  const NormShape norm = {kAllRows, kWidth};
  const CrossEntropyShape entropy = {kAllRows, kColumns, rank * kColumns, kVocabulary};
  std::vector<std::int32_t> targets;
  for (std::int32_t i = 0; i < kAllRows; ++i) targets.push_back(i % 7 == 3 ? -1 : i * 11 % 40);

  const auto make = [&](std::int64_t count) { return p.array<bf16>(size(count), 0, 0); };
  const auto make_f32 = [&](std::int64_t count) { return p.array<float>(size(count), 0, 0); };
  bf16* x = p.array<bf16>(size(kAllRows * kWidth), 7);
  bf16* ln = make(kAllRows * kWidth);
  float* mean = make_f32(kAllRows);
  float* rstd = make_f32(kAllRows);
  bf16* qkv = make(kAllRows * 3 * kOwn);
  bf16* mixed = make(kAllRows * kOwn);
  float* lse = make_f32(kBatch * kHeads * kTime);
  bf16* x2 = make(kAllRows * kWidth);
  bf16* hidden = make(kAllRows * kHidden);
  bf16* active = make(kAllRows * kHidden);
  bf16* y = make(kAllRows * kWidth);
  bf16* logits = make(kAllRows * kColumns);
  float* most = make_f32(kAllRows);
  float* sums = make_f32(kAllRows);
  float* target = make_f32(kAllRows);
  float* losses = make_f32(kAllRows);

  layer_norm_forward<bf16>(norm, x, w.norm_weight.value, w.norm_bias.value, 1e-5F, ln, mean, rstd,
                           threads);
  product(kWidth, 3 * kOwn, ln, w.qkv, qkv, threads);
  add_bias<bf16>(qkv, w.qkv_bias.value, kAllRows, 3 * kOwn, threads);
  const auto q = heads(qkv, 0, 3 * kOwn), k = heads(qkv, kOwn, 3 * kOwn),
             v = heads(qkv, 2 * kOwn, 3 * kOwn), o = heads(mixed, 0, kOwn);
  attention_forward<bf16>(attention, read_only(q), read_only(k), read_only(v), o, lse, threads);
  product(kOwn, kWidth, mixed, w.out, x2, threads);
  sum(x2, kAllRows * kWidth, DType::kBf16, ReduceOp::kSum);
  add<bf16>(x2, x, kAllRows * kWidth, threads);
  product(kWidth, kHidden, x2, w.up, hidden, threads);
  gelu_forward<bf16>(hidden, active, kAllRows * kHidden, threads);
  product(kHidden, kWidth, active, w.down, y, threads);
  sum(y, kAllRows * kWidth, DType::kBf16, ReduceOp::kSum);
  add<bf16>(y, x2, kAllRows * kWidth, threads);
  product(kWidth, kColumns, y, w.table, logits, threads);
  cross_entropy_max<bf16>(entropy, logits, most, threads);
  sum(most, kAllRows, DType::kF32, ReduceOp::kMax);
  cross_entropy_sums<bf16>(entropy, logits, targets.data(), most, sums, target, threads);
  sum(sums, kAllRows, DType::kF32, ReduceOp::kSum);
  sum(target, kAllRows, DType::kF32, ReduceOp::kSum);
  cross_entropy_loss<float>(kAllRows, targets.data(), sums, target, losses, threads);
  StepResult result;
  for (const double loss : p.read(losses, size(kAllRows))) result.loss += loss;

  bf16* d_y = make(kAllRows * kWidth);
  bf16* d_hidden = make(kAllRows * kHidden);
  bf16* d_x2 = make(kAllRows * kWidth);
  bf16* d_mixed = make(kAllRows * kOwn);
  bf16* d_qkv = make(kAllRows * 3 * kOwn);
  bf16* d_ln = make(kAllRows * kWidth);
  cross_entropy_backward<bf16>(entropy, logits, targets.data(), most, sums, 1.0F / kAllRows,
                               threads);
  product_backward(kWidth, kColumns, y, w.table, logits, d_y, threads);
  sum(d_y, kAllRows * kWidth, DType::kBf16, ReduceOp::kSum);
  product_backward(kHidden, kWidth, active, w.down, d_y, d_hidden, threads);
  gelu_backward<bf16>(d_hidden, hidden, d_hidden, kAllRows * kHidden, threads);
  product_backward(kWidth, kHidden, x2, w.up, d_hidden, d_x2, threads);
  sum(d_x2, kAllRows * kWidth, DType::kBf16, ReduceOp::kSum);
  add<bf16>(d_x2, d_y, kAllRows * kWidth, threads);
  product_backward(kOwn, kWidth, mixed, w.out, d_x2, d_mixed, threads);
  attention_backward<bf16>(attention, read_only(q), read_only(k), read_only(v), read_only(o), lse,
                           read_only(heads(d_mixed, 0, kOwn)), heads(d_qkv, 0, 3 * kOwn),
                           heads(d_qkv, kOwn, 3 * kOwn), heads(d_qkv, 2 * kOwn, 3 * kOwn), threads);
  bias_backward<bf16>(d_qkv, w.qkv_bias.gradient, kAllRows, 3 * kOwn, threads);
  product_backward(kWidth, 3 * kOwn, ln, w.qkv, d_qkv, d_ln, threads);
  sum(d_ln, kAllRows * kWidth, DType::kBf16, ReduceOp::kSum);
  layer_norm_backward<bf16>(norm, d_ln, x, w.norm_weight.value, mean, rstd, Write::kAccumulate,
                            d_x2, w.norm_weight.gradient, w.norm_bias.gradient, threads);
  for (const Weight* weight : w.weights()) {
    result.gradients.push_back(p.read(weight->gradient, size(weight->count)));
    weight->step(threads);
    result.masters.push_back(p.read(weight->master, size(weight->count)));
  }
  // A key's bias adds the same to all scores of a query: its gradient is zero but for roundings, of
  // which Adam takes the sign.
  auto& bias = result.masters[3];
  std::fill(bias.begin() + kOwn, bias.begin() + 2 * kOwn, 0.0);
  result.gradients.push_back(p.read(d_x2, size(kAllRows * kWidth)));
  return result;
}

enum class Where : std::uint8_t { kHost, kDevice };

std::array<StepResult, kRanks> train_on(Where where) {
  std::array<StepResult, kRanks> results;
  comm::Communicator::run_threads(kRanks, {.fuse = false}, [&](comm::Communicator& ranks) {
    StepResult& own = results[static_cast<std::size_t>(ranks.rank())];
    if (where == Where::kHost) {
      Place place(nullptr);
      own = train_step(place, ranks);
      return;
    }
    DeviceAccelerator accelerator;
    comm::ResidentOptions options;
    options.channels = 2;
    options.threads = 64;
    ranks.attach(comm::open_device_door(
        ranks, accelerator.stream(), [&](const void* pointer) { return accelerator.owns(pointer); },
        options));
    Place place(&accelerator);
    own = train_step(place, ranks);
    ranks.detach_device();
  });
  return results;
}

// A result lies behind at most 30 operations that round to bf16 (14 forward, 16 backward). Host and
// device agree before a rounding up to f32's error, so they differ in an element only where that
// falls on the two sides of a tie, and then by one unit, 2^-8: far below half a unit for each
// operation in norm, which is asked for.
constexpr double kStepBound = 30 * 0x1p-9;

TEST(Layer, AStepOnTwoTensorRanksOfTheDeviceEqualsTheHosts) {
  if (kRaceDetector) GTEST_SKIP() << "the CPU kernels are not instrumented: run by test_gpu";
  const auto host = train_on(Where::kHost);
  const auto device = train_on(Where::kDevice);
  for (int rank = 0; rank < kRanks; ++rank) {
    const StepResult& expected = host[static_cast<std::size_t>(rank)];
    const StepResult& actual = device[static_cast<std::size_t>(rank)];
    EXPECT_GT(expected.loss, 0);
    EXPECT_NEAR(actual.loss / expected.loss, 1, kStepBound);
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      EXPECT_LE(difference(actual.gradients[i], expected.gradients[i]), kStepBound)
          << "gradient " << i << ", rank " << rank;
    }
    for (std::size_t i = 0; i < expected.masters.size(); ++i) {
      EXPECT_LE(difference(actual.masters[i], expected.masters[i]), kStepBound)
          << "weight " << i << ", rank " << rank;
    }
  }
  EXPECT_EQ(device[0].loss, device[1].loss);
}

}  // namespace
}  // namespace sinew
