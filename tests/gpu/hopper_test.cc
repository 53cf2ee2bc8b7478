// What the asynchronous units of sm_90 take and refuse on the twin, where hardware would give wrong
// results in silence: descriptors, fences, tensor maps; and that approximations and sums of tensor
// cores are as far off as hardware may be.
#include "kernels/device/gpu/hopper.h"

#include "kernels/device/gpu.h"
#include "kernels/device/tensor_map.h"
#include "kernels/device/twin/approximation.h"
#include "kernels/device/twin/tensor_sum.h"
#include "tests/gpu/device_array.h"

namespace sinew {

namespace hopper_test {

// Bits exchanged in the descriptor of B, where its tile begins, and whether there is a fence.
struct Misuse {
  std::uint64_t descriptor = 0;
  int offset = 0;
  bool outer_major = false;
  bool fenced = true;
};

__global__ void product_kernel(Misuse misuse, float* out) {
  SHARED_DYNAMIC(unsigned char, tile);
  for (auto i = static_cast<int>(threadIdx.x); i < 16 * 1024; i += 128) tile[i] = 0;
  __syncthreads();
  float sums[64] = {};
  if (misuse.fenced) gpu::wgmma_fence();
  const std::uint64_t a = gpu::tile_descriptor<gpu::Major::kDepth>(tile, 0);
  if (misuse.outer_major) {
    const std::uint64_t b = gpu::tile_descriptor<gpu::Major::kOuter>(tile + misuse.offset, 8192);
    gpu::wgmma_multiply<gpu::Major::kDepth, gpu::Major::kOuter>(sums, a, b ^ misuse.descriptor,
                                                                false);
  } else {
    const std::uint64_t b = gpu::tile_descriptor<gpu::Major::kDepth>(tile + misuse.offset, 0);
    gpu::wgmma_multiply<gpu::Major::kDepth, gpu::Major::kDepth>(sums, a, b ^ misuse.descriptor,
                                                                false);
  }
  gpu::wgmma_commit();
  gpu::wgmma_wait<0>();
  gpu::wgmma_results(sums);
  out[threadIdx.x] = sums[0];
}

__global__ void box_kernel(const device::TensorMap* map, bool fenced, float* out) {
  SHARED_DYNAMIC(unsigned char, tile);
  SHARED(std::uint64_t, barrier, 1);
  gpu::mbarrier_init(barrier, 1);
  if (fenced) gpu::mbarrier_fence_init();
  gpu::mbarrier_arrive_expect(barrier, 8 * 128);
  gpu::load_box(tile, *map, 0, 0, barrier);
  gpu::mbarrier_wait(barrier, 0);
  out[0] = tile[0];
}

}  // namespace hopper_test

namespace {

using namespace testing;
using namespace hopper_test;

template <typename Queue>
std::string trouble_of(Queue&& queue) {
  device::Stream stream;
  try {
    queue(stream);
    stream.synchronize();
  } catch (const device::Error& error) {
    return error.what();
  }
  return "";
}

std::string trouble_of(const Misuse& misuse, std::size_t shared_bytes = 32 * 1024) {
  const DeviceArray<float> out(128);
  return trouble_of([&](device::Stream& stream) {
    device::launch(product_kernel, {.block = {128}, .shared_bytes = shared_bytes}, stream, misuse,
                   out.data());
  });
}

TEST(Hopper, OperandsThatHardwareWouldMisreadAreRefused) {
  EXPECT_EQ(trouble_of({}), "");
  EXPECT_EQ(trouble_of({.offset = 96}), "") << "the last 16 of a row's 64 summands";
  EXPECT_EQ(trouble_of({.offset = 2048, .outer_major = true}), "");
  const struct {
    Misuse misuse;
    const char* words;
  } kCases[] = {
      {{.descriptor = std::uint64_t{1} << 63}, "swizzle"},
      {{.descriptor = std::uint64_t{1} << 50}, "must be 0"},
      {{.descriptor = std::uint64_t{1} << 32}, "1024 bytes apart"},
      {{.offset = 128}, "inside a group of eight rows"},
      {{.offset = 112}, "within a row"},
      {{.offset = 64, .outer_major = true}, "multiple of 1024"},
      {{.fenced = false}, "no wgmma.fence"},
  };
  for (const auto& c : kCases) {
    const std::string trouble = trouble_of(c.misuse);
    EXPECT_NE(trouble.find(c.words), std::string::npos)
        << "'" << trouble << "' instead of '" << c.words << "'";
  }
  EXPECT_NE(trouble_of({.offset = 1024}, 16 * 1024).find("outside"), std::string::npos);
}

device::MatrixBox small_matrix(const DeviceArray<bf16>& data) {
  return {.data = data.data(), .rows = 8, .columns = 64, .row_stride = 64, .box_rows = 8};
}

TEST(Hopper, ABoxIsCopiedOnlyWhenTheCopyUnitKnowsTheBarrier) {
  device::Stream stream;
  const DeviceArray<bf16> data(std::vector<bf16>(8 * 64), stream);
  const DeviceArray<float> out(1);
  const DeviceArray<device::TensorMap> map(
      std::vector<device::TensorMap>{device::make_tensor_map(small_matrix(data))}, stream);
  const auto trouble = [&](bool fenced) {
    return trouble_of([&](device::Stream& queue) {
      device::launch(box_kernel, {.block = {1}, .shared_bytes = 1024}, queue, map.data(), fenced,
                     out.data());
    });
  };
  EXPECT_EQ(trouble(true), "");
  EXPECT_NE(trouble(false).find("without a fence"), std::string::npos);
}

TEST(Hopper, TensorMapsThatTheDriverRefusesAreRefused) {
  const DeviceArray<bf16> data(64);
  const auto refused = [&](auto&& change) {
    device::MatrixBox box = small_matrix(data);
    change(box);
    EXPECT_THROW(static_cast<void>(device::make_tensor_map(box)), device::Error);
  };
  static_cast<void>(device::make_tensor_map(small_matrix(data)));
  refused([](auto& box) { box.data += 1; });
  refused([](auto& box) { box.rows = 0; });
  refused([](auto& box) { box.rows = (std::uint64_t{1} << 32) + 1; });
  refused([](auto& box) { box.columns = 0; });
  refused([](auto& box) { box.columns = 72; });
  refused([](auto& box) { box.row_stride = 68; });
  refused([](auto& box) { box.row_stride = std::uint64_t{1} << 39; });
  refused([](auto& box) { box.box_rows = 0; });
  refused([](auto& box) { box.box_rows = 257; });
}

TEST(TensorSum, CutsWhatLiesBelowTheLastBitOfTheLargest) {
  twin::TensorSums<2> sums;
  const float rights[] = {-5, 0x1.8p-24F};
  sums.add(1, rights);  // rounded the second would be a unit
  EXPECT_EQ(sums.on(0, 2), -3.0F);
  EXPECT_EQ(sums.on(1, 1), 1.0F);
  EXPECT_EQ(sums.on(1, -1), -0x1.fffffcp-1F);
  EXPECT_EQ(sums.on(1, 0), 0x1.8p-24F);
  const float ones[] = {1, 1};
  for (int i = 0; i < 8; ++i) sums.add(1, ones);
  EXPECT_EQ(sums.on(0, 0), 3.0F);
  EXPECT_EQ(sums.on(1, -8), 0.0F) << "a small product beside large ones is lost";
  const float negative[] = {-16, INFINITY};
  sums.add(1, negative);
  EXPECT_EQ(sums.on(1, 0), INFINITY);
  EXPECT_EQ(sums.on(0, 13 + 0x1p-20F), 0.0F) << "the largest is told by its magnitude";
}

TEST(Approximation, OfAPowerOfTwoIsOffByItsBoundToBothSides) {
  int above = 0;
  for (int i = 1; i <= 100; ++i) {
    const float x = -0.37F * static_cast<float>(i);
    const double error = static_cast<double>(twin::exp2_approx(x)) / std::exp2(double{x}) - 1;
    EXPECT_LT(std::abs(error), 0x1.8p-22);
    EXPECT_GT(std::abs(error), 0x1p-23);
    above += error > 0 ? 1 : 0;
  }
  EXPECT_GT(above, 20);
  EXPECT_LT(above, 80);
  EXPECT_EQ(twin::exp2_approx(0), 1.0F);
  EXPECT_EQ(twin::exp2_approx(-INFINITY), 0.0F);
  EXPECT_EQ(twin::exp2_approx(-130), 0.0F) << "subnormal results are flushed";
}

}  // namespace
}  // namespace sinew
