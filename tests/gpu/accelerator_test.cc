// The public functions of kernels/ give the same results, within the error of their formats, when
// Threads names an accelerator; and a communicator's collectives reach arrays that are a device's.
#include <functional>
#include <thread>

#include "comm/communicator.h"
#include "comm/device/door.h"
#include "kernels/elementwise.h"
#include "kernels/gelu.h"
#include "kernels/mixed_adamw.h"
#include "tests/gpu/place.h"
#include "tests/gpu/races.h"

namespace sinew {
namespace {

using namespace testing;
using namespace kernels;

using Results = std::vector<std::vector<double>>;

// Both round each result to bf16 once; sums in f32 differ in their order.
void expect_same(const char* name, const std::function<Results(Place&)>& run,
                 double bound = 2 * kRoundingError<bf16>) {
  Place host(nullptr);
  DeviceAccelerator accelerator;
  Place device(&accelerator);
  const Results expected = run(host);
  const Results actual = run(device);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double difference = 0;
    double norm = 0;
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      difference += (actual[i][j] - expected[i][j]) * (actual[i][j] - expected[i][j]);
      norm += expected[i][j] * expected[i][j];
    }
    EXPECT_GT(norm, 0) << name << " result " << i;
    EXPECT_LE(std::sqrt(difference / norm), bound) << name << " result " << i;
  }
}

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kChannels = 40;
constexpr std::size_t kCount = kRows * kChannels;

TEST(Accelerator, ElementsAreComputedAsOnTheHost) {
  expect_same("add", [](Place& p) -> Results {
    bf16* y = p.array<bf16>(kCount, 1);
    float* z = p.array<float>(kCount, 2);
    add<bf16>(y, p.array<bf16>(kCount, 3), kCount, p.threads());
    add<float>(z, p.array<float>(kCount, 4), kCount, p.threads());
    return {p.read(y, kCount), p.read(z, kCount)};
  });
  expect_same("bias", [](Place& p) -> Results {
    bf16* y = p.array<bf16>(kCount, 1);
    float* d_bias = p.array<float>(kChannels, 5);
    add_bias<bf16>(y, p.array<bf16>(kChannels, 3), kRows, kChannels, p.threads());
    bias_backward<bf16>(y, d_bias, kRows, kChannels, p.threads());
    return {p.read(y, kCount), p.read(d_bias, kChannels)};
  });
  expect_same("gelu", [](Place& p) -> Results {
    const bf16* x = p.array<bf16>(kCount, 1);
    bf16* y = p.array<bf16>(kCount, 2);
    bf16* d = p.array<bf16>(kCount, 3);
    gelu_forward<bf16>(x, y, kCount, p.threads());
    gelu_backward<bf16>(d, x, d, kCount, p.threads());
    return {p.read(y, kCount), p.read(d, kCount)};
  });
  expect_same("copy, clear and squares", [](Place& p) -> Results {
    const bf16* x = p.array<bf16>(kCount, 1);
    bf16* y = p.array<bf16>(kCount, 2);
    copy<bf16>(y, x, kCount, p.threads());
    clear<bf16>(y, kChannels, p.threads());
    return {p.read(y, kCount),
            {sum_of_squares<bf16>(x, kCount, p.threads())},
            {sum_of_squares<float>(p.array<float>(kCount, 9), kCount, p.threads())}};
  });
  expect_same("adamw", [](Place& p) -> Results {
    float* master = p.array<float>(kCount, 1);
    bf16* weight = p.array<bf16>(kCount, 2);
    float* m = p.array<float>(kCount, 3);
    float* v = p.array<float>(kCount, 4, 0);
    adamw_with_master({.lr = 0.1, .weight_decay = 0.1}, kCount, p.array<float>(kCount, 5), master,
                      weight, m, v, p.threads());
    return {p.read(master, kCount), p.read(weight, kCount), p.read(m, kCount), p.read(v, kCount)};
  });
}

TEST(Accelerator, ProductsOfAllThreeFormsAreThoseOfTheHost) {
  constexpr std::int64_t kOut = 24;
  expect_same("gemm", [](Place& p) -> Results {
    const bf16* x = p.array<bf16>(kCount, 1);
    const bf16* w = p.array<bf16>(kChannels * kOut, 2);
    bf16* y = p.array<bf16>(kRows * kOut, 3);
    bf16* d_x = p.array<bf16>(kCount, 4);
    float* d_w = p.array<float>(kChannels * kOut, 5);
    gemm<bf16, bf16>({.shape = {.m = kRows,
                                .n = kOut,
                                .k = kChannels,
                                .a_stride = kChannels,
                                .b_stride = kOut,
                                .c_stride = kOut},
                      .a = x,
                      .b = w,
                      .c = y},
                     p.threads());
    gemm<bf16, bf16>({.shape = {.m = kRows,
                                .n = kChannels,
                                .k = kOut,
                                .b_form = Form::kTransposed,
                                .a_stride = kOut,
                                .b_stride = kOut,
                                .c_stride = kChannels},
                      .a = y,
                      .b = w,
                      .c = d_x},
                     p.threads());
    gemm<bf16, float>({.shape = {.m = kChannels,
                                 .n = kOut,
                                 .k = kRows,
                                 .a_form = Form::kTransposed,
                                 .a_stride = kChannels,
                                 .b_stride = kOut,
                                 .c_stride = kOut},
                       .a = x,
                       .b = y,
                       .beta = 1,
                       .c = d_w},
                      p.threads());
    return {p.read(y, kRows * kOut), p.read(d_x, kCount), p.read(d_w, kChannels * kOut)};
  });
}

TEST(Accelerator, NormsAttentionTablesAndLossAreThoseOfTheHost) {
  expect_same("layer norm", [](Place& p) -> Results {
    const bf16* x = p.array<bf16>(kCount, 1);
    const bf16* weight = p.array<bf16>(kChannels, 2);
    bf16* y = p.array<bf16>(kCount, 3);
    float* mean = p.array<float>(kRows, 4);
    float* rstd = p.array<float>(kRows, 5);
    float* d_weight = p.array<float>(kChannels, 6);
    float* d_bias = p.array<float>(kChannels, 7);
    bf16* d_x = p.array<bf16>(kCount, 8);
    layer_norm_forward<bf16>({kRows, kChannels}, x, weight, p.array<bf16>(kChannels, 9), 1e-5F, y,
                             mean, rstd, p.threads());
    layer_norm_backward<bf16>({kRows, kChannels}, p.array<bf16>(kCount, 10), x, weight, mean, rstd,
                              Write::kAccumulate, d_x, d_weight, d_bias, p.threads());
    return {p.read(y, kCount), p.read(rstd, kRows), p.read(d_x, kCount),
            p.read(d_weight, kChannels), p.read(d_bias, kChannels)};
  });
  // Weights and their gradients are rounded to bf16 before they are multiplied: see the header.
  expect_same(
      "attention",
      [](Place& p) -> Results {
        const AttentionShape s = {.batch = 2, .time = 20, .heads = 2, .kv_heads = 2, .head_dim = 8};
        const std::int64_t width = s.heads * s.head_dim;
        const auto count = static_cast<std::size_t>(s.batch * s.time * width);
        bf16* qkv = p.array<bf16>(3 * count, 1);
        bf16* d_qkv = p.array<bf16>(3 * count, 2);
        bf16* o = p.array<bf16>(count, 3);
        bf16* d_o = p.array<bf16>(count, 4);
        float* lse = p.array<float>(count / 8, 5);
        const auto third = [&](bf16* x, int i) {
          return HeadView<bf16>{x + i * width, s.time * 3 * width, 3 * width};
        };
        const auto c = [](HeadView<bf16> v) {
          return HeadView<const bf16>{v.data, v.batch_stride, v.time_stride};
        };
        const HeadView<bf16> out = {o, s.time * width, width};
        attention_forward<bf16>(s, c(third(qkv, 0)), c(third(qkv, 1)), c(third(qkv, 2)), out, lse,
                                p.threads());
        attention_backward<bf16>(s, c(third(qkv, 0)), c(third(qkv, 1)), c(third(qkv, 2)), c(out),
                                 lse, {d_o, s.time * width, width}, third(d_qkv, 0),
                                 third(d_qkv, 1), third(d_qkv, 2), p.threads());
        return {p.read(o, count), p.read(lse, count / 8), p.read(d_qkv, 3 * count)};
      },
      4 * kRoundingError<bf16>);
  const std::vector<std::int32_t> ids = {3, 0, 7, -1, 5, 5, 2, 9, 1, 3, 6, 4};
  expect_same("embedding", [&](Place& p) -> Results {
    const EmbeddingShape s = {
        .batch = 2, .time = 6, .channels = kChannels, .first_row = 0, .rows = 10};
    std::vector<std::int32_t> tokens = ids;
    tokens[3] = 8;
    bf16* y = p.array<bf16>(kCount, 1);
    float* d_table = p.array<float>(10 * kChannels, 2);
    float* d_positions = p.array<float>(6 * kChannels, 3);
    embedding_forward<bf16>(s, tokens.data(), p.array<bf16>(10 * kChannels, 4),
                            p.array<bf16>(6 * kChannels, 5), y, p.threads());
    embedding_backward<bf16>(s, tokens.data(), p.array<bf16>(kCount, 6), d_table, d_positions,
                             p.threads());
    return {p.read(y, kCount), p.read(d_table, 10 * kChannels), p.read(d_positions, 6 * kChannels)};
  });
  expect_same("cross entropy", [&](Place& p) -> Results {
    const CrossEntropyShape s = {
        .rows = kRows, .columns = kChannels, .first_column = 0, .vocabulary = 38};
    bf16* logits = p.array<bf16>(kCount, 1);
    float* most = p.array<float>(kRows, 2);
    float* sums = p.array<float>(kRows, 3);
    float* target = p.array<float>(kRows, 4);
    float* loss = p.array<float>(kRows, 5);
    cross_entropy_max<bf16>(s, logits, most, p.threads());
    cross_entropy_sums<bf16>(s, logits, ids.data(), most, sums, target, p.threads());
    cross_entropy_loss<float>(kRows, ids.data(), sums, target, loss, p.threads());
    cross_entropy_backward<bf16>(s, logits, ids.data(), most, sums, 0.5F, p.threads());
    return {p.read(sums, kRows), p.read(loss, kRows), p.read(logits, kCount)};
  });
}

TEST(Accelerator, OwnsWhatItAllocatedAndNothingElse) {
  DeviceAccelerator accelerator;
  auto* memory = static_cast<char*>(accelerator.allocate(100));
  const int local = 0;
  EXPECT_TRUE(accelerator.owns(memory) && accelerator.owns(memory + 99));
  EXPECT_FALSE(accelerator.owns(memory + 100) || accelerator.owns(memory - 1));
  EXPECT_FALSE(accelerator.owns(&local) || accelerator.owns(nullptr));
  accelerator.synchronize();
  EXPECT_EQ(memory[99], 0);
  accelerator.free(memory);
  EXPECT_FALSE(accelerator.owns(memory));
}

// Arrays of the device go over cuda_ipc, the host's as before; counters count both.
TEST(Accelerator, ACommunicatorTakesArraysOfEither) {
  if (kRaceDetector) GTEST_SKIP() << "the CPU executor is not instrumented: run by test_gpu";
  comm::Communicator::run_threads(3, {}, [](comm::Communicator& communicator) {
    DeviceAccelerator accelerator;
    comm::ResidentOptions options;
    options.channels = 2;
    options.threads = 32;
    communicator.attach(comm::open_device_door(
        communicator, accelerator.stream(),
        [&](const void* pointer) { return accelerator.owns(pointer); }, options));
    Place place(&accelerator);
    auto* shared = place.array<float>(30, 1, 0);
    std::array<float, 30> local{};
    for (std::size_t i = 0; i < 30; ++i)
      shared[i] = local[i] = static_cast<float>(i * static_cast<std::size_t>(communicator.rank()));
    communicator.reset_counters();
    communicator.all_reduce(shared, shared, 30, DType::kF32, ReduceOp::kSum,
                            {.algorithm = "two_shot"});
    communicator.all_reduce(local.data(), local.data(), 30, DType::kF32, ReduceOp::kSum,
                            {.algorithm = "two_shot"});
    comm::Request request = communicator.start_reduce_scatter(
        shared, shared + 10 * communicator.rank(), 10, DType::kF32, ReduceOp::kMax);
    request.wait();  // the device, not the host
    EXPECT_FALSE(request.pending());
    accelerator.synchronize();
    for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(shared[i], static_cast<float>(3 * i));
    for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(local[i], static_cast<float>(3 * i));
    const comm::Counter& counter =
        communicator.counters().collective[static_cast<std::size_t>(sched::Collective::kAllReduce)];
    EXPECT_EQ(counter.calls, 2);
    EXPECT_EQ(counter.payload_bytes, 240);
    EXPECT_EQ(counter.sent_bytes % 160, 0);  // each sends 2 of 3 chunks of 40 bytes, twice
    communicator.detach_device();
  });
}

}  // namespace
}  // namespace sinew
