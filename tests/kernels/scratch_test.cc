// Laws of scratch memory: blocks are apart, aligned, writable to their end, and come back.
#include "kernels/scratch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace sinew::kernels {
namespace {

TEST(Scratch, BlocksAreAlignedAndApart) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<Scratch<unsigned char>, std::int64_t>> blocks;
    for (const std::int64_t size : {0, 1, 63, 64, 65, 4096, 100'000, 1 << 20, 3'000'000, 2, 70}) {
      blocks.emplace_back(allocate_scratch<unsigned char>(size), size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().first.get()) % 64, 0U);
      std::memset(blocks.back().first.get(), static_cast<int>(blocks.size()),
                  static_cast<std::size_t>(size));
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (std::int64_t byte = 0; byte < blocks[i].second; ++byte) {
        ASSERT_EQ(blocks[i].first[static_cast<std::size_t>(byte)], i + 1);
      }
    }
  }
}

TEST(Scratch, AKeptBlockServesTheNextOfItsSizeAndTooLargeOnesAreNotKept) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "nothing is kept under AddressSanitizer";
#endif
  std::thread([] {
    const void* first = allocate_scratch<float>(1000).get();
    EXPECT_EQ(allocate_scratch<float>(1000).get(), first);
    EXPECT_EQ(allocate_scratch<float>(10).get(), first);
    // The smallest that fits.
    {
      const auto larger = allocate_scratch<float>(5000);
      const auto again = allocate_scratch<float>(1000);
      EXPECT_EQ(again.get(), first);
    }
    EXPECT_EQ(allocate_scratch<float>(900).get(), first);
  }).join();
}

TEST(Scratch, ABlockMayBeFreedByAnotherThread) {
  for (int round = 0; round < 20; ++round) {
    auto block = allocate_scratch<int>(100'000 + round);
    block[99'999] = round;
    std::thread([mine = std::move(block), round] { EXPECT_EQ(mine[99'999], round); }).join();
  }
}

}  // namespace
}  // namespace sinew::kernels
