// The contract on numbers (comm/README.md, Numbers), a test for each sentence, over the table of
// types. What is expected is computed here in the words of the contract.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"
#include "kernels/element.h"
#include "sched/base/partition.h"
#include "sched/base/philox.h"
#include "sched/collective/registry.h"
#include "tests/comm/support/failures.h"

namespace sinew::comm::testing {
namespace {

using kernels::narrow;
using kernels::Wide;
using kernels::widen;

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T>;

template <typename T>
using Inputs = std::vector<std::vector<T>>;  // [rank][index]

template <typename Function>
void for_each_type(const Function& function) {
  for (const DTypeInfo& type : kDTypes)
    visit(type.dtype, [&](auto zero) { function(type.dtype, zero); });
}

// Any bits, or numbers of few digits, or what is not ordinary.
template <typename T>
T any_value(int rank, std::int64_t index) {
  const auto words =
      Philox(7, static_cast<std::uint64_t>(rank)).words(static_cast<std::uint64_t>(index), 3);
  T bits;
  std::memcpy(&bits, words.data(), sizeof bits);
  if constexpr (kIsInteger<T>) {
    return bits;
  } else {
    const float specials[] = {0.0F,   -0.0F,     INFINITY, -INFINITY, NAN,
                              448.0F, -57344.0F, 65504.0F, 3e38F};
    if (words[3] % 4 == 0) return bits;
    if (words[3] % 4 == 1) return narrow<T>(specials[words[2] % std::size(specials)]);
    return narrow<T>(static_cast<Wide<T>>(static_cast<int>(words[2] % 513) - 256) / 64);
  }
}

// Numbers that round when added, none of them special.
template <typename T>
T rounding_value(int rank, std::int64_t index) {
  const auto words =
      Philox(9, static_cast<std::uint64_t>(rank)).words(static_cast<std::uint64_t>(index), 4);
  return narrow<T>(static_cast<Wide<T>>(1 + words[0] % 997) / static_cast<Wide<T>>(7) /
                   static_cast<Wide<T>>(1 << words[1] % 3));
}

template <typename T>
Inputs<T> make(int world, std::int64_t count, T (*value)(int, std::int64_t) = any_value<T>) {
  Inputs<T> inputs(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    for (std::int64_t i = 0; i < count; ++i)
      inputs[static_cast<std::size_t>(rank)].push_back(value(rank, i));
  }
  return inputs;
}

template <typename T>
bool is_nan(T value) {
  if constexpr (kIsInteger<T>) return false;
  return std::isnan(static_cast<double>(widen(value)));
}

// Which NaN is not promised where there was arithmetic.
template <typename T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (is_nan(a) && is_nan(b));
}

template <typename W>
W combined(ReduceOp op, W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    if (op == ReduceOp::kMin) return a < b ? a : b;
    if (op == ReduceOp::kMax) return a < b ? b : a;
    return static_cast<W>(op == ReduceOp::kProd ? x * y : x + y);
  } else {
    if (op == ReduceOp::kProd) return a * b;
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) return a + b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<W>::quiet_NaN();
    const bool a_below = a < b || (a == b && std::signbit(a));
    return a_below == (op == ReduceOp::kMin) ? a : b;
  }
}

enum class Rounding : bool { kAtTheEnd, kEachTime };

// Of ranks first, first + 1, ... in turn.
template <typename T>
T folded(ReduceOp op, const Inputs<T>& inputs, std::size_t index, std::size_t first,
         Rounding rounding) {
  const std::size_t world = inputs.size();
  if (world == 1) return inputs[0][index];
  auto result = widen(inputs[first][index]);
  for (std::size_t i = 1; i < world; ++i) {
    result = combined(op, result, widen(inputs[(first + i) % world][index]));
    if (rounding == Rounding::kEachTime) result = widen(narrow<T>(result));
  }
  T rounded = narrow<T>(result);
  if (op != ReduceOp::kAvg) return rounded;
  if constexpr (kIsInteger<T>) {
    using W = std::conditional_t<std::is_unsigned_v<T>, std::uint64_t, std::int64_t>;
    return static_cast<T>(static_cast<W>(rounded) / static_cast<W>(world));
  } else {
    return narrow<T>(widen(rounded) / static_cast<Wide<T>>(world));
  }
}

template <typename T>
std::string compare(const std::vector<T>& found, const std::vector<T>& want,
                    const std::string& what) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!same(found[i], want[i])) {
      return what + ", element " + std::to_string(i) + ": " +
             std::to_string(static_cast<double>(widen(found[i]))) + " for " +
             std::to_string(static_cast<double>(widen(want[i])));
    }
  }
  return {};
}

std::string words(DType dtype, ReduceOp op, std::string_view algorithm, int world) {
  return std::string(name_of(dtype)) + " " + std::string(name_of(op)) + " by " +
         std::string(algorithm) + " on " + std::to_string(world) + " ranks";
}

// An all-reduce of `inputs` by every algorithm, blocking and started: the same on all ranks.
template <typename T>
void expect_all_reduce(DType dtype, ReduceOp op, const Inputs<T>& inputs,
                       const std::vector<T>& want) {
  const int world = static_cast<int>(inputs.size());
  Failures failures;
  Communicator::run_threads(world, {}, [&](Communicator& c) {
    for (const sched::Algorithm& row : sched::algorithms()) {
      if (row.op != sched::Collective::kAllReduce || !row.refuse({.world = world}).empty())
        continue;
      std::vector<T> output(want.size());
      c.all_reduce(inputs[static_cast<std::size_t>(c.rank())].data(), output.data(),
                   static_cast<std::int64_t>(want.size()), dtype, op, {.algorithm = row.name});
      failures.add(compare(output, want, words(dtype, op, row.name, world)));
    }
  });
}

TEST(Numbers, MovesKeepEveryBitOfEveryType) {
  constexpr int kWorld = 3;
  constexpr std::int64_t kCount = 301;
  for_each_type([&](DType dtype, auto zero) {
    using T = decltype(zero);
    const Inputs<T> inputs = make<T>(kWorld, kCount * kWorld);
    Failures failures;
    Communicator::run_threads(kWorld, {}, [&](Communicator& c) {
      const auto rank = static_cast<std::size_t>(c.rank());
      const T* mine = inputs[rank].data();
      std::vector<T> output(kCount * kWorld);
      const auto expect = [&](const char* what, std::size_t place, const T* want) {
        if (std::memcmp(output.data() + place * kCount, want, kCount * sizeof(T)) != 0)
          failures.add(std::string(what) + " changed bits of " + std::string(name_of(dtype)));
      };
      c.broadcast(mine, output.data(), kCount, dtype, 1);
      expect("broadcast", 0, inputs[1].data());
      c.scatter(mine, output.data(), kCount, dtype, 1);
      expect("scatter", 0, inputs[1].data() + rank * kCount);
      c.all_gather(mine, output.data(), kCount, dtype);
      for (std::size_t from = 0; from < kWorld; ++from)
        expect("all_gather", from, inputs[from].data());
      c.all_to_all(mine, output.data(), kCount, dtype);
      for (std::size_t from = 0; from < kWorld; ++from)
        expect("all_to_all", from, inputs[from].data() + rank * kCount);
      c.gather(mine, output.data(), kCount, dtype, 1);
      for (std::size_t from = 0; from < kWorld && rank == 1; ++from)
        expect("gather", from, inputs[from].data());
      group([&] {
        c.send(mine, kCount, dtype, (c.rank() + 1) % kWorld);
        c.recv(output.data(), kCount, dtype, (c.rank() + 2) % kWorld);
      });
      expect("a message", 0, inputs[(rank + 2) % kWorld].data());
    });
  });
}

TEST(Numbers, AReductionOfOneRankCopiesEveryBit) {
  for_each_type([](DType dtype, auto zero) {
    using T = decltype(zero);
    const std::vector<T> input = make<T>(1, 700)[0];
    Communicator::run_threads(1, {}, [&](Communicator& c) {
      for (const ReduceOpInfo& op : kReduceOps) {
        std::vector<T> output(input.size());
        const auto expect = [&](const char* what) {
          EXPECT_EQ(std::memcmp(output.data(), input.data(), input.size() * sizeof(T)), 0)
              << what << " " << name_of(dtype) << " " << op.name;
          output.assign(input.size(), T{});
        };
        c.all_reduce(input.data(), output.data(), 700, dtype, op.op);
        expect("all_reduce");
        c.reduce_scatter(input.data(), output.data(), 700, dtype, op.op);
        expect("reduce_scatter");
        c.reduce(input.data(), output.data(), 700, dtype, op.op, 0);
        expect("reduce");
      }
    });
  });
}

// one_shot, two_shot and direct, as small calls, as schedules, and on symmetric memory.
TEST(Numbers, OnePassAlgorithmsFollowTheRanksAndRoundOnce) {
  for (const int world : {2, 3, 5}) {
    for_each_type([&](DType dtype, auto zero) {
      using T = decltype(zero);
      Failures failures;
      Communicator::run_threads(world, {}, [&](Communicator& c) {
        const Symmetric first = c.allocate(9000 * sizeof(T));
        const Symmetric second = c.allocate(9000 * sizeof(T));
        for (const std::int64_t count : {5, 9000}) {
          const Inputs<T> inputs = make<T>(world, count);
          const std::vector<T>& mine = inputs[static_cast<std::size_t>(c.rank())];
          for (const ReduceOpInfo& op : kReduceOps) {
            std::vector<T> want;
            for (std::size_t i = 0; i < mine.size(); ++i)
              want.push_back(folded(op.op, inputs, i, 0, Rounding::kAtTheEnd));
            std::vector<T> output(mine.size());
            for (const char* name : {"one_shot", "two_shot"}) {
              c.all_reduce(mine.data(), output.data(), count, dtype, op.op, {.algorithm = name});
              failures.add(compare(output, want, words(dtype, op.op, name, world)));
            }
            std::memcpy(first.get(), mine.data(), mine.size() * sizeof(T));
            c.all_reduce(first.get(), second.get(), count, dtype, op.op, {.algorithm = "two_shot"});
            std::memcpy(output.data(), second.get(), mine.size() * sizeof(T));
            failures.add(compare(output, want, words(dtype, op.op, "symmetric two_shot", world)));
            c.reduce(mine.data(), output.data(), count, dtype, op.op, world - 1,
                     {.algorithm = "direct"});
            if (c.rank() == world - 1)
              failures.add(compare(output, want, words(dtype, op.op, "direct reduce", world)));
            const std::vector<std::int64_t> counts = [&] {
              std::vector<std::int64_t> all(static_cast<std::size_t>(world), 0);
              all.back() = count;
              return all;
            }();
            c.reduce_scatter_v(mine.data(), output.data(), counts, dtype, op.op,
                               {.algorithm = "direct"});
            if (c.rank() == world - 1)
              failures.add(
                  compare(output, want, words(dtype, op.op, "direct reduce_scatter_v", world)));
          }
        }
      });
    });
  }
}

// A partial result travels in the type, so a ring rounds once per hop: chunk c starts at rank c.
TEST(Numbers, ARingRoundsOncePerHop) {
  for (const int world : {2, 3, 5}) {
    for_each_type([&](DType dtype, auto zero) {
      using T = decltype(zero);
      constexpr std::int64_t kCount = 3001;
      const Inputs<T> inputs = make<T>(world, kCount, rounding_value<T>);
      Failures failures;
      Communicator::run_threads(world, {}, [&](Communicator& c) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kAvg}) {
          std::vector<T> want;
          for (int chunk = 0; chunk < world; ++chunk) {
            const Part part = partition(kCount, world, chunk);
            for (std::int64_t i = part.offset; i < part.offset + part.count; ++i) {
              want.push_back(folded(op, inputs, static_cast<std::size_t>(i),
                                    static_cast<std::size_t>(chunk), Rounding::kEachTime));
            }
          }
          std::vector<T> output(kCount);
          c.all_reduce(inputs[static_cast<std::size_t>(c.rank())].data(), output.data(), kCount,
                       dtype, op, {.algorithm = "ring"});
          failures.add(compare(output, want, words(dtype, op, "ring", world)));
        }
      });
    });
  }
}

TEST(Numbers, IntegersWrapAndSoAreEqualByEveryAlgorithm) {
  for (const int world : {2, 5}) {
    for_each_type([&](DType dtype, auto zero) {
      using T = decltype(zero);
      if constexpr (kIsInteger<T>) {
        const Inputs<T> inputs = make<T>(world, 600);
        for (const ReduceOpInfo& op : kReduceOps) {
          std::vector<T> want;
          for (std::size_t i = 0; i < 600; ++i)
            want.push_back(folded(op.op, inputs, i, 0, Rounding::kAtTheEnd));
          expect_all_reduce(dtype, op.op, inputs, want);
        }
        const T most = std::numeric_limits<T>::max();
        expect_all_reduce<T>(dtype, ReduceOp::kSum, {{most}, {1}}, {std::numeric_limits<T>::min()});
      }
    });
  }
}

TEST(Numbers, AverageOfIntegersIsTheWrappedSumTowardZero) {
  for_each_type([](DType dtype, auto zero) {
    using T = decltype(zero);
    if constexpr (kIsInteger<T>) {
      const T most = std::numeric_limits<T>::max();
      const T wrapped = static_cast<T>(static_cast<std::uint64_t>(most) * 2);
      expect_all_reduce<T>(dtype, ReduceOp::kAvg, {{most, 3}, {most, 4}},
                           {static_cast<T>(wrapped / 2), 3});
      if constexpr (std::is_signed_v<T>)
        expect_all_reduce<T>(dtype, ReduceOp::kAvg, {{-3}, {-4}}, {-3});
    }
  });
}

TEST(Numbers, MinAndMaxPropagateNaNAndOrderZerosByEveryAlgorithm) {
  for (const int world : {2, 5}) {
    for_each_type([&](DType dtype, auto zero) {
      using T = decltype(zero);
      const Inputs<T> inputs = make<T>(world, 600);
      for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
        std::vector<T> want;
        for (std::size_t i = 0; i < 600; ++i)
          want.push_back(folded(op, inputs, i, 0, Rounding::kAtTheEnd));
        expect_all_reduce(dtype, op, inputs, want);
      }
      if constexpr (!kIsInteger<T>) {
        const T minus = narrow<T>(-static_cast<Wide<T>>(0));
        const T nan = narrow<T>(static_cast<Wide<T>>(NAN));
        const T one = narrow<T>(1);
        expect_all_reduce<T>(dtype, ReduceOp::kMin, {{T{}, nan}, {minus, one}}, {minus, nan});
        expect_all_reduce<T>(dtype, ReduceOp::kMax, {{T{}, one}, {minus, nan}}, {T{}, nan});
      }
    });
  }
}

// The largest finite value of a float.
template <typename T>
T largest() {
  if constexpr (kernels::kIsFloat8<T>) {
    return narrow<T>(kernels::Float8Traits<T>::kLargest);
  } else if constexpr (std::is_same_v<T, Wide<T>>) {
    return std::numeric_limits<T>::max();
  } else {
    return {static_cast<std::uint16_t>(std::is_same_v<T, bf16> ? 0x7f7f : 0x7bff)};
  }
}

TEST(Numbers, OverflowGivesInfinityAndSaturatesFloatsOf8Bits) {
  for_each_type([](DType dtype, auto zero) {
    using T = decltype(zero);
    if constexpr (!kIsInteger<T>) {
      const T most = largest<T>();
      const T least = narrow<T>(-widen(most));
      // In an 8-bit float what is infinite becomes the largest value; e4m3 has no infinity.
      const Wide<T> infinity = std::numeric_limits<Wide<T>>::infinity();
      const T over = narrow<T>(infinity);
      const T given = std::is_same_v<T, e5m2>
                          ? std::bit_cast<T>(std::array<std::uint8_t, sizeof(T)>{0x7c})
                          : over;
      EXPECT_EQ(std::isinf(widen(over)), !kernels::kIsFloat8<T>);
      expect_all_reduce<T>(dtype, ReduceOp::kSum, {{most, least, given}, {most, least, T{}}},
                           {over, narrow<T>(-widen(over)), over});
      expect_all_reduce<T>(dtype, ReduceOp::kProd, {{most, given}, {most, narrow<T>(1)}},
                           {over, over});
      expect_all_reduce<T>(dtype, ReduceOp::kMax, {{given}, {narrow<T>(1)}}, {over});
    }
  });
}

// The sum may overflow where the average does not; factors of 1/P avoid it.
TEST(Numbers, AverageDividesTheRoundedSumOnce) {
  for_each_type([](DType dtype, auto zero) {
    using T = decltype(zero);
    if constexpr (!kIsInteger<T>) {
      const T most = largest<T>();
      const T sum = narrow<T>(widen(most) + widen(most));
      expect_all_reduce<T>(dtype, ReduceOp::kAvg, {{most}, {most}}, {narrow<T>(widen(sum) / 2)});
      Communicator::run_threads(2, {}, [&](Communicator& c) {
        const T half = narrow<T>(static_cast<Wide<T>>(0.5));
        T value = most;
        c.all_reduce(&value, &value, 1, dtype, ReduceOp::kSum, {.factor = &half});
        EXPECT_TRUE(same(value, most)) << name_of(dtype);
      });
      for (const int world : {3, 5}) {
        Inputs<T> inputs(static_cast<std::size_t>(world), {T{}});
        inputs[0][0] = narrow<T>(1);
        expect_all_reduce<T>(dtype, ReduceOp::kAvg, inputs,
                             {narrow<T>(1 / static_cast<Wide<T>>(world))});
      }
    }
  });
}

// Every rank's own factor; each product in the type before the first sum.
TEST(Numbers, PreMultipliedSumsRoundEachProductFirst) {
  constexpr int kWorld = 3;
  constexpr std::int64_t kCount =
      5001;  // of f64: several of the pieces in which factors are applied
  for_each_type([](DType dtype, auto zero) {
    using T = decltype(zero);
    const Inputs<T> inputs = make<T>(kWorld, kCount * kWorld);
    const Inputs<T> factors = make<T>(kWorld, 1, rounding_value<T>);
    Inputs<T> products = inputs;
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      for (T& x : products[rank])
        x = narrow<T>(combined(ReduceOp::kProd, widen(x), widen(factors[rank][0])));
    }
    std::vector<T> want;
    for (std::size_t i = 0; i < kCount * kWorld; ++i)
      want.push_back(folded(ReduceOp::kSum, products, i, 0, Rounding::kAtTheEnd));
    Failures failures;
    Communicator::run_threads(kWorld, {}, [&](Communicator& c) {
      const auto rank = static_cast<std::size_t>(c.rank());
      const std::vector<T>& mine = inputs[rank];
      const auto expect = [&](const char* what, const T* found, std::size_t first,
                              std::size_t count) {
        const std::vector<T> part(want.begin() + static_cast<std::ptrdiff_t>(first),
                                  want.begin() + static_cast<std::ptrdiff_t>(first + count));
        failures.add(
            compare(std::vector<T>(found, found + count), part,
                    std::string(what) + " with factors of " + std::string(name_of(dtype))));
      };
      const auto by = [&](const char* algorithm) {
        return Call{.algorithm = algorithm, .factor = factors[rank].data()};
      };
      std::vector<T> output(kCount * kWorld);
      for (const std::size_t count : {std::size_t{3}, static_cast<std::size_t>(kCount)}) {
        const auto n = static_cast<std::int64_t>(count);
        c.all_reduce(mine.data(), output.data(), n, dtype, ReduceOp::kSum, by("two_shot"));
        expect("all_reduce", output.data(), 0, count);
        output = mine;
        c.start_all_reduce(output.data(), output.data(), n, dtype, ReduceOp::kSum, by("one_shot"))
            .wait();
        expect("started in place", output.data(), 0, count);
        c.reduce(mine.data(), output.data(), n, dtype, ReduceOp::kSum, 1, by("direct"));
        if (rank == 1) expect("reduce", output.data(), 0, count);
        c.reduce_scatter(mine.data(), output.data(), n, dtype, ReduceOp::kSum, by("direct"));
        expect("reduce_scatter", output.data(), rank * count, count);
        const std::vector<std::int64_t> counts = {0, n, 2 * n};
        c.start_reduce_scatter_v(mine.data(), output.data(), counts, dtype, ReduceOp::kSum,
                                 by("direct"))
            .wait();
        expect("reduce_scatter_v", output.data(), rank == 2 ? count : 0, rank * count);
      }
      if (std::memcmp(mine.data(), make<T>(kWorld, kCount * kWorld)[rank].data(),
                      mine.size() * sizeof(T)) != 0)
        failures.add("an input was changed");
      EXPECT_THROW(c.all_reduce(mine.data(), output.data(), 1, dtype, ReduceOp::kMax, by("ring")),
                   std::exception);
      EXPECT_THROW(c.broadcast(mine.data(), output.data(), 1, dtype, 0, by("binomial")),
                   std::exception);
    });
  });
}

// By every algorithm: all ranks, repeated calls, in place and not, blocking and started, through
// boxes or not.
TEST(Numbers, BitsDependOnTheWorldAndTheAlgorithmOnly) {
  for (const int world : {2, 3, 4, 5, 8}) {
    for_each_type([&](DType dtype, auto zero) {
      using T = decltype(zero);
      if constexpr (!kIsInteger<T>) {
        for (const std::int64_t count : {6, 2500}) {
          const Inputs<T> inputs = make<T>(world, count, rounding_value<T>);
          std::vector<std::vector<T>> first(sched::algorithms().size());
          for (const bool small : {true, false}) {
            Failures failures;
            Communicator::run_threads(world, {.small_calls = small}, [&](Communicator& c) {
              const std::vector<T>& mine = inputs[static_cast<std::size_t>(c.rank())];
              for (std::size_t i = 0; i < sched::algorithms().size(); ++i) {
                const sched::Algorithm& row = sched::algorithms()[i];
                if (row.op != sched::Collective::kAllReduce ||
                    !row.refuse({.world = world}).empty())
                  continue;
                const Call how{.algorithm = row.name};
                std::vector<T> apart(mine.size());
                std::vector<T> inside = mine;
                c.all_reduce(mine.data(), apart.data(), count, dtype, ReduceOp::kSum, how);
                if (c.rank() == 0 && first[i].empty()) first[i] = apart;
                c.start_all_reduce(inside.data(), inside.data(), count, dtype, ReduceOp::kSum, how)
                    .wait();
                c.barrier();  // first[i] is there
                for (const std::vector<T>& found : {apart, inside}) {
                  if (std::memcmp(found.data(), first[i].data(), found.size() * sizeof(T)) != 0)
                    failures.add("other bits: " + words(dtype, ReduceOp::kSum, row.name, world));
                }
              }
            });
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace sinew::comm::testing
