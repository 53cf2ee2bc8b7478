// Laws of sched/base: partition, units, text, dtype conversions, Philox.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "sched/base/dtype.h"
#include "sched/base/error.h"
#include "sched/base/partition.h"
#include "sched/base/philox.h"
#include "sched/base/text.h"
#include "sched/base/units.h"

namespace sinew {
namespace {

TEST(Partition, CoversEveryElementOnceAndDiffersByAtMostOne) {
  for (std::int64_t count : {0, 1, 2, 3, 7, 16, 63, 64, 1000}) {
    for (std::int64_t parts = 1; parts <= 70; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        const Part part = partition(count, parts, i);
        EXPECT_EQ(part.offset, next);
        EXPECT_TRUE(part.count == count / parts || part.count == count / parts + 1);
        next += part.count;
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(Partition, KeepsSixtyFourBits) {
  const std::int64_t count = std::int64_t{3} << 40;
  EXPECT_EQ(partition(count, 3, 2).offset, std::int64_t{2} << 40);
}

TEST(Units, RangesMultiplyAddAndJoin) {
  EXPECT_EQ(parse_byte_range("8:64M:x4").size(), 12U);
  EXPECT_EQ(parse_byte_range("8:64M:x4").back(), std::int64_t{32} << 20);
  EXPECT_EQ(parse_byte_range("1K:4K:+1K,7"),
            (std::vector<std::int64_t>{1024, 2048, 3072, 4096, 7}));
  EXPECT_EQ(parse_byte_range("0"), (std::vector<std::int64_t>{0}));
  for (const char* bad : {"", "x", "8:4:x2", "8:64M", "8:64M:x1", "0:8:x2", "-4", "8::x2", "1e3",
                          "99999999999999999999"}) {
    EXPECT_THROW((void)parse_byte_range(bad), UsageError) << bad;
  }
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(64 << 20), "64 MiB");
  EXPECT_EQ(format_seconds(1.9e-7), "190 ns");
  EXPECT_EQ(format_seconds(4.4e-6), "4.4 us");
  EXPECT_EQ(format_seconds(200), "3m20s");
}

TEST(Text, ParsesWholeFieldsOnly) {
  EXPECT_EQ(parse_int("-12", "value"), -12);
  EXPECT_THROW((void)parse_int("12x", "value"), UsageError);
  EXPECT_THROW((void)parse_double("nan", "value"), UsageError);
  EXPECT_EQ(fields("  a  bc ").size(), 2U);
  EXPECT_EQ(split("a,,b", ',').size(), 3U);
  EXPECT_EQ(trim("\t x\n"), "x");
}

TEST(DTypes, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 half{static_cast<std::uint16_t>(bits)};
    const bf16 brain{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(half))) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(to_float(half)))));
    } else {
      EXPECT_EQ(to_f16(to_float(half)).bits, half.bits);
    }
    if (std::isnan(to_float(brain))) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(brain)))));
    } else {
      EXPECT_EQ(to_bf16(to_float(brain)).bits, brain.bits);
    }
  }
}

TEST(DTypes, RoundToNearestEvenBetweenEveryPairOfHalves) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = to_float(f16{bits});
    const float high = to_float(f16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(to_f16(middle).bits, (bits & 1U) != 0 ? bits + 1 : bits);
    EXPECT_EQ(to_f16(std::nextafter(middle, low)).bits, bits);
    EXPECT_EQ(to_f16(std::nextafter(middle, high)).bits, bits + 1);
  }
  EXPECT_EQ(to_f16(65519.0F).bits, 0x7bff);
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);
}

TEST(DTypes, UnknownNamesListTheLegalOnes) {
  try {
    (void)parse_dtype("f33");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("bf16"), std::string::npos);
    EXPECT_EQ(error.exit_code(), 2);
  }
}

// Known-answer vectors of Random123 (Salmon et al. 2011), philox4x32-10.
TEST(Philox, MatchesThePublishedVectors) {
  Philox zero(0, 0);
  EXPECT_EQ(zero.words(0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  Philox ones(0, 0);
  ones.key = {0xffffffff, 0xffffffff};
  EXPECT_EQ(ones.words(~0ULL, ~0ULL),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, NormalHasUnitVarianceAndStaysFinite) {
  const Philox random(42, 1);
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  // Four standard errors of the mean and of the variance of kCount normal samples.
  EXPECT_LT(std::abs(sum / kCount), 4 / std::sqrt(kCount));
  EXPECT_LT(std::abs(squares / kCount - 1), 4 * std::sqrt(2.0 / kCount));
}

}  // namespace
}  // namespace sinew
