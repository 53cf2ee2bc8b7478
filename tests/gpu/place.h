// Place: arrays of a test on the host or on a device, by one text.
#pragma once

#include <cstring>
#include <list>
#include <vector>

#include "kernels/device/accelerator.h"
#include "kernels/elementwise.h"
#include "tests/gpu/device_array.h"

namespace sinew::testing {

class Place {
 public:
  // accelerator: null for the host; must outlive this.
  explicit Place(kernels::DeviceAccelerator* accelerator) : accelerator_(accelerator) {}
  [[nodiscard]] kernels::Threads threads() const { return {.accelerator = accelerator_}; }
  template <typename T>
  T* array(std::size_t count, std::uint32_t seed, float scale = 1.0F) {
    std::vector<T> values(count);
    if (scale != 0) values = from_floats<T>(normal_values(count, seed, scale));
    const std::size_t size_bytes = count * sizeof(T);
    void* memory = nullptr;
    if (accelerator_ != nullptr) {
      memory = accelerator_->allocate(size_bytes);
      accelerator_->synchronize();
    } else {
      memory = host_.emplace_back(size_bytes).data();
    }
    std::memcpy(memory, values.data(), size_bytes);
    return static_cast<T*>(memory);
  }
  template <typename T>
  std::vector<double> read(const T* data, std::size_t count) const {
    kernels::synchronize(threads());
    return as_doubles(std::vector<T>(data, data + count));
  }

 private:
  kernels::DeviceAccelerator* accelerator_;
  std::list<std::vector<std::byte>> host_;
};

}  // namespace sinew::testing
