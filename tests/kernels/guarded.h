// Guarded: an array at a chosen misalignment between two guard zones, to show that a kernel writes
// nothing outside its result and needs no more than the element's natural alignment.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace sinew::kernels {

template <typename T>
class Guarded {
 public:
  // `offset` elements past a 64-byte boundary.
  explicit Guarded(std::int64_t count, std::int64_t offset = 0)
      : count_(count),
        bytes_(static_cast<std::size_t>(count + offset) * sizeof(T) + 3 * kGuardBytes, kGuard) {
    const auto start = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kGuardBytes;
    const std::uintptr_t aligned = (start + 63) / 64 * 64;
    first_byte_ = aligned - reinterpret_cast<std::uintptr_t>(bytes_.data()) +
                  static_cast<std::size_t>(offset) * sizeof(T);
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(first_byte_),
                count * static_cast<std::int64_t>(sizeof(T)), std::uint8_t{0});
  }

  [[nodiscard]] T* data() { return reinterpret_cast<T*>(bytes_.data() + first_byte_); }
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(bytes_.data() + first_byte_);
  }
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }
  [[nodiscard]] std::int64_t count() const { return count_; }

  void fill_from(const std::vector<T>& values) {
    if (count_ == 0) return;  // memcpy takes no null pointers, not even for nothing
    std::memcpy(static_cast<void*>(data()), values.data(),
                static_cast<std::size_t>(count_) * sizeof(T));
  }

  [[nodiscard]] bool is_intact() const {
    const auto is_guard = [](std::uint8_t byte) { return byte == kGuard; };
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(first_byte_);
    const auto end = first + count_ * static_cast<std::int64_t>(sizeof(T));
    return std::all_of(bytes_.begin(), first, is_guard) && std::all_of(end, bytes_.end(), is_guard);
  }

 private:
  static constexpr std::size_t kGuardBytes = 128;
  static constexpr std::uint8_t kGuard = 0xa5;
  std::int64_t count_;
  std::vector<std::uint8_t> bytes_;
  std::size_t first_byte_ = 0;
};

}  // namespace sinew::kernels
