// Laws of the reductions: every version equals an oracle that computes in wider arithmetic, bit for
// bit, for every type, operation, small count and misalignment, in place or not.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/element.h"
#include "kernels/registry.h"
#include "kernels/streaming.h"
#include "tests/kernels/guarded.h"

namespace sinew::kernels {
namespace {

constexpr std::uint64_t kSeed = 20240611;

template <typename T>
constexpr bool kIsNarrow = !std::is_same_v<T, Wide<T>>;

template <typename T>
double value_of(T x) {
  return static_cast<double>(widen(x));
}

template <typename T>
T from_float(float x) {
  return narrow<T>(static_cast<Wide<T>>(x));
}

// Any bits, ordinary numbers of few digits (so that sums tie and cancel), and the special values.
template <typename T>
T any_value(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    const std::uint64_t bits = random();
    return bits % 3 == 0 ? static_cast<T>(bits % 7) : static_cast<T>(bits >> 3);
  } else {
    static constexpr float kSpecial[] = {0.0F,   -0.0F,   INFINITY, -INFINITY, NAN,
                                         1e-40F, -1e-40F, 65504.0F, 3.3e38F,   -3.3e38F};
    switch (random() % 4) {
      case 0:
        return from_float<T>(kSpecial[random() % std::size(kSpecial)]);
      case 1: {
        T bits;
        const std::uint64_t word = random();
        std::memcpy(&bits, &word, sizeof bits);
        return bits;
      }
      default:
        return from_float<T>(static_cast<float>(static_cast<int>(random() % 513) - 256) / 64.0F);
    }
  }
}

// One operation in the type the contract names, written without the kernels' code: integers modulo
// 2^64, f32 in f64 (an exactly rounded f32 sum or product, since 53 >= 2 * 24 + 2), f64 in f64.
template <typename W>
W oracle(ReduceOp op, W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    switch (op) {
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kProd:
        return static_cast<W>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        return static_cast<W>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    }
  } else {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    const bool a_first = x < y || (x == y && std::signbit(x));
    switch (op) {
      case ReduceOp::kMin:
        if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<W>::quiet_NaN();
        return a_first ? a : b;
      case ReduceOp::kMax:
        if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<W>::quiet_NaN();
        return a_first ? b : a;
      case ReduceOp::kProd:
        return static_cast<W>(x * y);
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        return static_cast<W>(x + y);
    }
  }
  __builtin_unreachable();
}

template <typename T>
T oracle_of(ReduceOp op, const std::vector<std::vector<T>>& sources, std::size_t i) {
  if constexpr (kIsNarrow<T>) {
    float sum = to_float(sources[0][i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      sum = oracle(op, sum, to_float(sources[s][i]));
    }
    return from_float<T>(sum);
  } else {
    T sum = sources[0][i];
    for (std::size_t s = 1; s < sources.size(); ++s) sum = oracle(op, sum, sources[s][i]);
    return sum;
  }
}

template <typename T>
bool same(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (std::isnan(value_of(a)) && std::isnan(value_of(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <typename T>
std::vector<T> random_values(std::int64_t count, std::mt19937_64& random) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = any_value<T>(random);
  return values;
}

// use_binary runs `binary` on two sources, else `many` runs. in_place says which source the target
// is, or -1; offset is the target's misalignment in elements.
struct Case {
  ReduceOp op;
  DType dtype;
  bool use_binary;
  std::int64_t count;
  int source_count;
  int in_place;
  std::int64_t offset;
};

template <typename T>
void run_case(const ReduceFunctions& f, std::string_view version, const Case& c,
              const std::vector<std::vector<T>>& values) {
  std::vector<Guarded<T>> sources;
  std::vector<const void*> pointers;
  for (int s = 0; s < c.source_count; ++s) {
    sources.emplace_back(c.count, (c.offset + 3 * s) % 17);
    sources.back().fill_from(values[static_cast<std::size_t>(s)]);
  }
  for (const auto& source : sources) pointers.push_back(source.data());
  Guarded<T> other(c.count, c.offset);
  Guarded<T>& target = c.in_place < 0 ? other : sources[static_cast<std::size_t>(c.in_place)];
  const auto d = static_cast<std::size_t>(c.dtype);
  const auto o = static_cast<std::size_t>(c.op);
  if (c.use_binary) {
    f.binary[d][o](target.data(), pointers[0], pointers[1], c.count);
  } else {
    f.many[d][o](target.data(), pointers, c.count);
  }
  const std::vector<std::vector<T>> used(values.begin(), values.begin() + c.source_count);
  for (std::int64_t i = 0; i < c.count; ++i) {
    const T expected = oracle_of(c.op, used, static_cast<std::size_t>(i));
    ASSERT_TRUE(same(target[i], expected))
        << version << " " << name_of(c.dtype) << " " << name_of(c.op) << " count " << c.count
        << " sources " << c.source_count << " offset " << c.offset << " in place " << c.in_place
        << " element " << i << ": " << value_of(target[i]) << " for " << value_of(expected);
  }
  ASSERT_TRUE(target.is_intact());
  for (const auto& source : sources) ASSERT_TRUE(source.is_intact());
}

TEST(Reduce, EveryVersionEqualsTheOracleForSmallCountsAtEveryMisalignment) {
  std::mt19937_64 random(kSeed);
  for (const DTypeInfo& type : kDTypes) {
    visit(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<std::vector<T>> values;
      for (int s = 0; s < 2; ++s) values.push_back(random_values<T>(300, random));
      for (const auto& version : versions_of<ReduceFunctions>()) {
        for (const ReduceOpInfo& op : kReduceOps) {
          for (std::int64_t count = 0; count <= 300; count = count < 140 ? count + 1 : count + 31) {
            for (int in_place = -1; in_place <= 1; ++in_place) {
              for (std::int64_t offset = 0; offset < 17; offset += count < 70 ? 1 : 5) {
                run_case<T>(*version.functions, version.version,
                            {op.op, type.dtype, true, count, 2, in_place, offset}, values);
              }
            }
          }
        }
      }
    });
  }
}

// Every pair of 8-bit floats, NaNs, infinities and subnormals among them, in one call: every sum,
// product, minimum and maximum that there is.
template <typename T>
void check_every_pair() {
  std::vector<std::vector<T>> values(2);
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      values[0].push_back({static_cast<std::uint8_t>(a)});
      values[1].push_back({static_cast<std::uint8_t>(b)});
    }
  }
  const DType dtype = std::is_same_v<T, e4m3> ? DType::kE4m3 : DType::kE5m2;
  for (const auto& version : versions_of<ReduceFunctions>()) {
    for (const ReduceOpInfo& op : kReduceOps) {
      for (const bool use_binary : {true, false}) {
        run_case<T>(*version.functions, version.version,
                    {op.op, dtype, use_binary, 256 * 256, 2, -1, 0}, values);
      }
    }
  }
}

TEST(Reduce, EveryVersionEqualsTheOracleForEveryPairOf8BitFloats) {
  check_every_pair<e4m3>();
  check_every_pair<e5m2>();
}

TEST(Reduce, EveryVersionEqualsTheOracleForOneToNineSources) {
  std::mt19937_64 random(kSeed + 1);
  for (const DTypeInfo& type : kDTypes) {
    visit(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<std::vector<T>> values;
      for (int s = 0; s < 9; ++s) values.push_back(random_values<T>(200, random));
      for (const auto& version : versions_of<ReduceFunctions>()) {
        for (const ReduceOpInfo& op : kReduceOps) {
          for (std::int64_t count :
               {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 200}) {
            for (int sources : {1, 2, 3, 4, 9}) {
              const int in_place = static_cast<int>(count % (sources + 1)) - 1;
              run_case<T>(*version.functions, version.version,
                          {op.op, type.dtype, false, count, sources, in_place, count % 13}, values);
            }
          }
        }
      }
    });
  }
}

// Up to four places whose addresses agree modulo 64, from each misalignment; the first ones are
// sources, too, or none is.
TEST(Reduce, EveryPlaceOfManyGetsTheBitsOfOne) {
  std::mt19937_64 random(kSeed + 3);
  constexpr std::int64_t kApart = 512;  // whole lines of any type
  for (const DTypeInfo& type : kDTypes) {
    visit(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto d = static_cast<std::size_t>(type.dtype);
      const std::vector<T> before = random_values<T>(7 * kApart, random);
      for (const auto& version : versions_of<ReduceFunctions>()) {
        for (const ReduceOpInfo& op : kReduceOps) {
          const auto o = static_cast<std::size_t>(op.op);
          for (const std::int64_t count : {0, 1, 7, 16, 31, 64, 65, 129, 300}) {
            for (const std::int64_t offset : {0, 1, 4, 13}) {
              for (const std::int64_t first : {0, 3}) {  // of the places; sources are 0 to 2
                Guarded<T> room(7 * kApart, offset);
                room.fill_from(before);
                std::vector<const void*> sources;
                std::vector<void*> targets;
                for (std::int64_t s = 0; s < 3; ++s) sources.push_back(room.data() + s * kApart);
                for (std::int64_t place = 0; place < 1 + count % 4; ++place)
                  targets.push_back(room.data() + (first + place) * kApart);
                std::vector<T> expected(static_cast<std::size_t>(count));
                version.functions->many[d][o](expected.data(), sources, count);
                version.functions->many_to[d][o](targets, sources, count);
                for (std::int64_t i = 0; i < 7 * kApart; ++i) {
                  const std::int64_t place = i / kApart - first;
                  const bool inside =
                      i % kApart < count && place >= 0 && place < std::ssize(targets);
                  const T& right = inside ? expected[static_cast<std::size_t>(i % kApart)]
                                          : before[static_cast<std::size_t>(i)];
                  ASSERT_TRUE(same(room[i], right))
                      << version.version << " " << type.name << " " << op.name << " count " << count
                      << " offset " << offset << " from " << first << " element " << i;
                }
                ASSERT_TRUE(room.is_intact());
              }
            }
          }
        }
      }
    });
  }
}

TEST(Reduce, OnePlacePastTheCacheGetsTheSameBits) {
  std::mt19937_64 random(kSeed + 4);
  constexpr std::int64_t kCount = 301;
  for (const DTypeInfo& type : kDTypes) {
    visit(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      const std::vector<T> values = random_values<T>(3 * kCount, random);
      for (const std::size_t many : {1, 2, 3}) {
        for (const bool in_place : {false, true}) {
          std::vector<T> room = values;
          std::vector<const void*> sources;
          for (std::size_t s = 0; s < many; ++s) sources.push_back(room.data() + s * kCount);
          std::vector<T> expected(kCount);
          reduce_many(ReduceOp::kSum, type.dtype, expected.data(), sources, kCount);
          std::vector<T> apart(kCount);
          T* const target = in_place ? room.data() : apart.data();
          reduce_many(ReduceOp::kSum, type.dtype, target, sources, kCount, Stores::kPastCache);
          for (std::int64_t i = 0; i < kCount; ++i) {
            ASSERT_TRUE(same(target[i], expected[static_cast<std::size_t>(i)]))
                << type.name << " of " << many << " in place " << in_place << " element " << i;
          }
        }
      }
    });
  }
}

TEST(Reduce, OutputsBeyondTheCacheAreTheSameBits) {
  std::mt19937_64 random(kSeed + 2);
  const std::int64_t count = cpu().l3_bytes / 16 + kLeastStreamBytes / 8 + 4093;
  std::vector<float> values(1 << 12);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-40F;
  std::vector<float> left(static_cast<std::size_t>(count));
  std::vector<float> right(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] = values[i % values.size()];
    right[i] = values[(i * 7 + 3) % values.size()];
  }
  ASSERT_TRUE(bypasses_cache(2 * count * 4));
  const auto o = static_cast<std::size_t>(ReduceOp::kSum);
  std::vector<float> expected(left.size());
  reduce_plain().binary[0][o](expected.data(), left.data(), right.data(), count);
  const auto same_bits = [&](const Guarded<float>& found) {
    return std::memcmp(found.data(), expected.data(), expected.size() * 4) == 0 &&
           found.is_intact();
  };
  for (const auto& version : versions_of<ReduceFunctions>()) {
    Guarded<float> target(count, 5);
    version.functions->binary[0][o](target.data(), left.data(), right.data(), count);
    EXPECT_TRUE(same_bits(target)) << version.version;
    const std::vector<const void*> sources = {left.data(), right.data()};
    version.functions->many[0][o](target.data(), sources, count);
    EXPECT_TRUE(same_bits(target)) << version.version;
    for (const auto copy : version.functions->copy) {
      copy(target.data(), left.data(), count * 4);
      EXPECT_EQ(std::memcmp(target.data(), left.data(), left.size() * 4), 0) << version.version;
      EXPECT_TRUE(target.is_intact()) << version.version;
    }
  }
}

// Every count up to several rounds of the vector loop, and around the size from which it is taken,
// with the target anywhere in a line and the source before, at and behind it modulo a page.
TEST(Copy, MovesEveryByteAndNoMore) {
  std::mt19937_64 random(kSeed + 3);
  constexpr std::int64_t kPage = 4096;
  const auto values = random_values<std::uint8_t>(4 * kPage, random);
  const auto misplaced = reinterpret_cast<std::uintptr_t>(values.data()) % kPage;
  const std::uint8_t* page = values.data() + (kPage - misplaced);
  const auto check = [&](ReduceFunctions::Copy copy, std::int64_t count, std::int64_t offset) {
    Guarded<std::uint8_t> target(count, offset);
    const auto place = reinterpret_cast<std::uintptr_t>(target.data()) % kPage;
    for (const std::int64_t ahead : {0, 1, 16, 63, 64, 2048, 4095}) {
      const std::uint8_t* source =
          page + (static_cast<std::int64_t>(place) + kPage - ahead) % kPage;
      std::fill_n(target.data(), count, std::uint8_t{0});
      copy(target.data(), source, count);
      ASSERT_EQ(std::memcmp(target.data(), source, static_cast<std::size_t>(count)), 0)
          << count << " bytes, target " << offset << " past a line, " << ahead
          << " past the source";
      ASSERT_TRUE(target.is_intact());
    }
  };
  for (const auto& version : versions_of<ReduceFunctions>()) {
    for (const auto copy : version.functions->copy) {
      for (std::int64_t count = 0; count < 520; ++count) check(copy, count, count % 67);
      for (std::int64_t count = 2047; count < 2047 + 260; ++count) check(copy, count, count % 67);
      for (std::int64_t offset = 0; offset < 64; ++offset) check(copy, 4096 + offset % 3, offset);
    }
  }
}

TEST(Copy, NothingIsCopiedFromAndToNowhere) {
  copy(nullptr, nullptr, 0);
  for (const auto& version : versions_of<ReduceFunctions>()) {
    for (const auto copy : version.functions->copy) copy(nullptr, nullptr, 0);
  }
}

TEST(Scale, EveryVersionDividesAndRoundsOnce) {
  std::mt19937_64 random(kSeed + 4);
  for (const DTypeInfo& type : kDTypes) {
    visit(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const auto& version : versions_of<ReduceFunctions>()) {
        for (std::int64_t divisor : {1, 2, 3, 7, 300, 1024}) {
          for (std::int64_t count : {0, 1, 5, 16, 31, 67, 131}) {
            const auto values = random_values<T>(count, random);
            Guarded<T> data(count, count % 11);
            data.fill_from(values);
            version.functions->scale[static_cast<std::size_t>(type.dtype)](data.data(), count,
                                                                           divisor);
            for (std::int64_t i = 0; i < count; ++i) {
              const T x = values[static_cast<std::size_t>(i)];
              T expected;
              if constexpr (std::is_integral_v<T>) {
                const auto by = static_cast<Divided<T>>(divisor);
                expected = static_cast<T>(static_cast<Divided<T>>(x) / by);
              } else if constexpr (std::is_same_v<T, double>) {
                expected = x / static_cast<double>(divisor);
              } else {
                expected =
                    from_float<T>(static_cast<float>(value_of(x) / static_cast<double>(divisor)));
              }
              ASSERT_TRUE(same(data[i], expected))
                  << version.version << " " << type.name << " " << value_of(x) << " / " << divisor;
            }
            ASSERT_TRUE(data.is_intact());
          }
        }
      }
    });
  }
}

TEST(Reduce, SplittingACallChangesNoBits) {
  std::mt19937_64 random(kSeed + 5);
  const auto a = random_values<bf16>(1000, random);
  const auto b = random_values<bf16>(1000, random);
  std::vector<bf16> whole(1000);
  std::vector<bf16> parts(1000);
  reduce(ReduceOp::kSum, DType::kBf16, whole.data(), a.data(), b.data(), 1000);
  for (std::int64_t step : {1, 7, 32, 333}) {
    for (std::int64_t i = 0; i < 1000; i += step) {
      reduce(ReduceOp::kSum, DType::kBf16, parts.data() + i, a.data() + i, b.data() + i,
             std::min<std::int64_t>(step, 1000 - i));
    }
    for (std::size_t i = 0; i < 1000; ++i) ASSERT_TRUE(same(whole[i], parts[i]));
  }
}

TEST(Reduce, IntegersWrapAndHalvesRoundToEven) {
  std::vector<std::int32_t> a = {std::numeric_limits<std::int32_t>::max(), -7, 1 << 30};
  const std::vector<std::int32_t> b = {1, 2, 4};
  reduce(ReduceOp::kSum, DType::kI32, a.data(), a.data(), b.data(), 3);
  EXPECT_EQ(a[0], std::numeric_limits<std::int32_t>::min());
  scale(DType::kI32, a.data() + 1, 1, 2);
  EXPECT_EQ(a[1], -2);  // -5 / 2
  // 1 + 2^-8 is a tie in bf16 (8 bits of precision): it rounds to the even neighbour 1. Two such
  // halves of a unit make a whole one when the sum is rounded once.
  const bf16 one = to_bf16(1.0F);
  const bf16 half_unit = to_bf16(0x1p-8F);
  bf16 out;
  reduce(ReduceOp::kSum, DType::kBf16, &out, &one, &half_unit, 1);
  EXPECT_EQ(to_float(out), 1.0F);
  const void* sources[] = {&one, &half_unit, &half_unit};
  reduce_many(ReduceOp::kSum, DType::kBf16, &out, sources, 1);
  EXPECT_EQ(to_float(out), 1.0F + 0x1p-7F);
}

}  // namespace
}  // namespace sinew::kernels
