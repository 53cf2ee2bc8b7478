// Embedding on the device gives the CPU's bits, forward and backward, whole and cut by rows.
#include "kernels/embedding.h"

#include "kernels/embedding_gpu.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/scenarios.h"

namespace sinew {
namespace {

using namespace testing;
using kernels::EmbeddingShape;

constexpr EmbeddingShape kWhole = {3, 120, 12, 0, 50};
constexpr EmbeddingShape kPart = {3, 120, 13, 20, 17};

std::vector<std::int32_t> random_tokens(const EmbeddingShape& shape) {
  std::mt19937 generator(7);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.batch * shape.time));
  // Few different ones, so that rows meet often.
  for (auto& token : tokens) token = static_cast<std::int32_t>(generator() % 50);
  return tokens;
}

bool backward_is_right(const EmbeddingShape& shape, device::Stream& stream) {
  const auto tokens = random_tokens(shape);
  const auto d_y =
      normal_values(static_cast<std::size_t>(shape.batch * shape.time * shape.channels), 1);
  std::vector<float> d_table =
      normal_values(static_cast<std::size_t>(shape.rows * shape.channels), 2);
  std::vector<float> d_positions =
      normal_values(static_cast<std::size_t>(shape.time * shape.channels), 3);
  const DeviceArray<std::int32_t> g_tokens(tokens, stream);
  const DeviceArray<float> g_d_y(d_y, stream), g_d_table(d_table, stream);
  const DeviceArray<float> g_d_positions(d_positions, stream);
  kernels::embedding_backward<float>(shape, tokens.data(), d_y.data(), d_table.data(),
                                     d_positions.data());
  kernels::embedding_backward<float>(shape, g_tokens.data(), g_d_y.data(), g_d_table.data(),
                                     g_d_positions.data(), stream);
  return same_bits(g_d_table.download(stream), d_table) &&
         same_bits(g_d_positions.download(stream), d_positions);
}

TEST(GpuEmbedding, BackwardGivesTheBitsOfTheCpu) {
  for_each_schedule(
      [](device::Stream& stream) {
        EXPECT_TRUE(backward_is_right(kWhole, stream));
        EXPECT_TRUE(backward_is_right(kPart, stream));
      },
      1);
}

TEST(GpuEmbedding, ForwardGivesTheBitsOfTheCpu) {
  for (const EmbeddingShape& shape : {kWhole, kPart}) {
    const auto tokens = random_tokens(shape);
    const auto table = normal_values(static_cast<std::size_t>(shape.rows * shape.channels), 1);
    const auto positions = normal_values(static_cast<std::size_t>(shape.time * shape.channels), 2);
    std::vector<float> y(tokens.size() * static_cast<std::size_t>(shape.channels));
    kernels::embedding_forward<float>(shape, tokens.data(), table.data(), positions.data(),
                                      y.data());
    for_each_schedule(
        [&](device::Stream& stream) {
          const DeviceArray<std::int32_t> g_tokens(tokens, stream);
          const DeviceArray<float> g_table(table, stream), g_positions(positions, stream),
              g_y(y.size());
          kernels::embedding_forward<float>(shape, g_tokens.data(), g_table.data(),
                                            g_positions.data(), g_y.data(), stream);
          EXPECT_TRUE(same_bits(g_y.download(stream), y));
        },
        1);
  }
}

TEST(GpuEmbedding, Bf16RoundsTheSumOnce) {
  device::Stream stream;
  const auto table = from_floats<bf16>(normal_values(50 * 12, 1));
  const auto positions = from_floats<bf16>(normal_values(120 * 12, 2));
  const auto tokens = random_tokens(kWhole);
  std::vector<bf16> expected;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::size_t c = 0; c < 12; ++c) {
      expected.push_back(to_bf16(to_float(table[static_cast<std::size_t>(tokens[i]) * 12 + c]) +
                                 to_float(positions[i % 120 * 12 + c])));
    }
  }
  const DeviceArray<std::int32_t> g_tokens(tokens, stream);
  const DeviceArray<bf16> g_table(table, stream), g_positions(positions, stream);
  const DeviceArray<bf16> g_y(expected.size());
  kernels::embedding_forward<bf16>(kWhole, g_tokens.data(), g_table.data(), g_positions.data(),
                                   g_y.data(), stream);
  EXPECT_TRUE(same_bits(g_y.download(stream), expected));
}

}  // namespace

bool testing::embedding_scenario(device::Stream& stream) {
  return backward_is_right({2, 150, 4, 0, 50}, stream);
}

}  // namespace sinew
