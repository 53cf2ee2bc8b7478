// Reductions on the device give the CPU's bits: every type, operation, source count, length and
// alignment.
#include <random>

#include "kernels/element.h"
#include "kernels/reduce.h"
#include "kernels/reduce_gpu.h"
#include "tests/gpu/device_array.h"

namespace sinew {
namespace {

using testing::DeviceArray;
using testing::for_each_schedule;

template <typename T>
bool is_nan(T value) {
  const kernels::Wide<T> wide = kernels::widen(value);
  return wide != wide;
}

// Ordinary values, and now and then what is not ordinary.
template <typename T>
std::vector<T> random_values(std::size_t count, std::mt19937& generator) {
  std::vector<T> values(count);
  std::normal_distribution<float> normal;
  for (T& value : values) {
    const bool odd = generator() % 16 == 0;
    const float special[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 1e-41F, 65504.0F};
    const float number = odd ? special[generator() % std::size(special)] : normal(generator);
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>((static_cast<std::uint64_t>(generator()) << 32) | generator());
    } else {
      value = kernels::narrow<T>(number);
    }
  }
  return values;
}

template <typename T>
void expect_same(const std::vector<T>& actual, const std::vector<T>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (is_nan(actual[i]) && is_nan(expected[i])) continue;
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(T)), 0) << "element " << i;
  }
}

struct Shape {
  int sources;
  std::int64_t count;
  std::int64_t shift;  // elements by which the pointers miss 16-byte alignment
};

constexpr Shape kShapes[] = {{1, 1, 0}, {2, 37, 0}, {3, 1030, 0}, {2, 515, 1}, {9, 67, 0}};

template <typename T>
void test_many(DType dtype, ReduceOp op, const Shape& shape, device::Stream& stream) {
  std::mt19937 generator(static_cast<std::uint32_t>(shape.count + 7 * static_cast<int>(op)));
  const auto total = static_cast<std::size_t>(shape.count + shape.shift);
  std::vector<std::vector<T>> host;
  std::vector<DeviceArray<T>> arrays;
  std::vector<const void*> host_sources;
  std::vector<const void*> sources;
  for (int s = 0; s < shape.sources; ++s) {
    host.push_back(random_values<T>(total, generator));
    arrays.emplace_back(host.back(), stream);
    sources.push_back(arrays.back().data() + shape.shift);
  }
  for (const auto& values : host) host_sources.push_back(values.data() + shape.shift);
  std::vector<T> expected = host.back();
  kernels::reduce_many(op, dtype, expected.data() + shape.shift, host_sources, shape.count);

  // In place over the last source: the most a target may overlap.
  kernels::reduce_many(op, dtype, arrays.back().data() + shape.shift, sources, shape.count, stream);
  expect_same(arrays.back().download(stream), expected);
  expect_same(arrays.front().download(stream), shape.sources == 1 ? expected : host.front());
}

TEST(GpuReduce, ManySourcesGiveTheBitsOfTheCpu) {
  for_each_schedule(
      [](device::Stream& stream) {
        for (const DTypeInfo& type : kDTypes) {
          for (const ReduceOpInfo& op : kReduceOps) {
            for (const Shape& shape : kShapes) {
              SCOPED_TRACE(std::string(type.name) + " " + std::string(op.name) + " x" +
                           std::to_string(shape.count));
              visit(type.dtype, [&](auto zero) {
                test_many<decltype(zero)>(type.dtype, op.op, shape, stream);
              });
            }
          }
        }
      },
      1);
}

TEST(GpuReduce, ScaleGivesTheBitsOfTheCpu) {
  device::Stream stream;
  for (const DTypeInfo& type : kDTypes) {
    visit(type.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::mt19937 generator(5);
      std::vector<T> values = random_values<T>(301, generator);
      const DeviceArray<T> array(values, stream);
      for (const std::int64_t divisor : {1, 3, 300}) {
        kernels::scale(type.dtype, values.data(), 301, divisor);
        kernels::scale(type.dtype, array.data(), 301, divisor, stream);
      }
      expect_same(array.download(stream), values);
    });
  }
}

}  // namespace
}  // namespace sinew
