// Arena: one allocation per role of memory (parameters, gradients, optimizer state, activations),
// so that a rank's bytes are counted where they are made and can be held against the formulas.
//
// With an accelerator the memory is a device's (kernels/accelerator.h), which must outlive the
// arena; the host may use it at once, and later on after kernels::synchronize().
//
// offload_to() puts what is allocated afterwards into files (file_memory.h).
//
// Threads: one thread at a time. Memory is zeroed and aligned to kAlignment. Views live as long as
// the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/accelerator.h"
#include "model/file_memory.h"
#include "sched/base/check.h"

namespace sinew::model {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;  // a cache line, and the widest vector register

  explicit Arena(std::string_view role, kernels::Accelerator* accelerator = nullptr)
      : role_(role), accelerator_(accelerator) {}

  // `count` zeroed elements; null for none.
  template <typename T>
  [[nodiscard]] T* allocate(std::int64_t count) {
    if (count == 0) return nullptr;
    const std::size_t size_bytes = static_cast<std::size_t>(count) * sizeof(T);
    std::byte* memory = allocate_bytes(size_bytes);
    blocks_.emplace_back(memory, Free{accelerator_, folder_.empty() ? 0 : size_bytes});
    size_bytes_ += static_cast<std::int64_t>(size_bytes);
    return reinterpret_cast<T*>(memory);
  }

  // Not on a device.
  void offload_to(const std::string& folder) {
    CHECK(accelerator_ == nullptr);
    folder_ = folder;
  }
  [[nodiscard]] bool offloads() const { return !folder_.empty(); }

  [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] std::string_view role() const { return role_; }

 private:
  struct Free {
    kernels::Accelerator* accelerator = nullptr;
    std::size_t mapped_bytes = 0;
    void operator()(std::byte* memory) const {
      if (mapped_bytes > 0) {
        unmap_file_memory(memory, mapped_bytes);
      } else if (accelerator != nullptr) {
        accelerator->free(memory);
      } else {
        ::operator delete (memory, std::align_val_t{kAlignment});
      }
    }
  };
  [[nodiscard]] std::byte* allocate_bytes(std::size_t size_bytes) {
    if (!folder_.empty()) return map_file_memory(folder_, size_bytes);
    if (accelerator_ != nullptr) {
      auto* memory = static_cast<std::byte*>(accelerator_->allocate(size_bytes));
      accelerator_->synchronize();  // the zeros are there before the host writes
      return memory;
    }
    auto* memory =
        static_cast<std::byte*>(::operator new (size_bytes, std::align_val_t{kAlignment}));
    std::memset(memory, 0, size_bytes);
    return memory;
  }

  std::string_view role_;
  kernels::Accelerator* accelerator_;
  std::string folder_;
  std::int64_t size_bytes_ = 0;
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

}  // namespace sinew::model
