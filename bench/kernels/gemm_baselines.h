// Other libraries' GEMM, for comparison in the same run: OpenBLAS, BLIS and oneDNN, each loaded
// from the system when it is installed. Of these oneDNN multiplies bf16; so does an OpenBLAS that
// was built with it. Loaded at run time, because two of them export the same names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "sched/base/dtype.h"

namespace sinew::bench {

class GemmBaseline {
 public:
  virtual ~GemmBaseline() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  // C = op(A) op(B), row-major, shapes and strides below 2^31.
  virtual void run(const kernels::GemmShape& shape, const float* a, const float* b, float* c) = 0;
  // The same with bf16 operands, for libraries that have it.
  [[nodiscard]] virtual bool has_bf16() const = 0;
  virtual void run(const kernels::GemmShape& shape, const bf16* a, const bf16* b, float* c) = 0;
};

// Those found on this machine, set to use `threads` threads.
[[nodiscard]] std::vector<std::unique_ptr<GemmBaseline>> find_gemm_baselines(int threads);

}  // namespace sinew::bench
