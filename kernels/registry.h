// The table of kernel versions: one row per (operation, element type, version), plain first,
// fastest last. A public function runs the last row whose instruction set this processor has; tests
// and benchmarks loop over all of them. The table is constant: nothing here changes after it is
// built, and every thread may read it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/cpu.h"
#include "sched/base/dtype.h"

namespace sinew::kernels {

struct KernelRow {
  std::string_view operation;
  std::optional<DType> dtype;  // none: the functions cover all types
  std::string_view version;
  Isa isa;  // what the version needs of the processor
  // The operation's struct of functions (GeluFunctions and so on); null when the version is not
  // part of this build, because the compiler's target architecture lacks the instruction set.
  const void* functions;
};

[[nodiscard]] std::span<const KernelRow> kernel_rows();
[[nodiscard]] bool is_available(const KernelRow& row);

template <typename T>
constexpr std::optional<DType> dtype_of() {
  if constexpr (std::is_same_v<T, void>) return std::nullopt;
  for (const DTypeInfo& row : kDTypes) {
    if (visit(row.dtype, [](auto zero) { return std::is_same_v<decltype(zero), T>; }))
      return row.dtype;
  }
  return std::nullopt;
}

template <typename Functions>
struct KernelVersion {
  std::string_view version;
  const Functions* functions;
};

// The versions of one operation that this processor can run, plain first. Functions states
// kOperation and Element (void when it covers all types).
template <typename Functions>
[[nodiscard]] std::vector<KernelVersion<Functions>> versions_of() {
  std::vector<KernelVersion<Functions>> found;
  for (const KernelRow& row : kernel_rows()) {
    if (row.operation == Functions::kOperation &&
        row.dtype == dtype_of<typename Functions::Element>() && is_available(row)) {
      found.push_back({row.version, static_cast<const Functions*>(row.functions)});
    }
  }
  return found;
}

// The fastest of them, found once.
template <typename Functions>
[[nodiscard]] const Functions& best() {
  static const Functions& functions = *versions_of<Functions>().back().functions;
  return functions;
}

}  // namespace sinew::kernels
