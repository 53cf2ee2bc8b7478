// Accelerator: where the kernels of a training step run when their arrays lie in a device's memory.
// Threads carries one; the public functions of this folder then hand the call over, so that a model
// is one text for both.
//
// Arrays are those of allocate(): memory that the device computes on and that the processor may
// address too, but only after synchronize() and before the next call that uses it. Calls are queued
// in order and return. Shapes, formulas and aliasing are those of the functions of the same names.
// Elements are bf16 with f32 sums, statistics and gradients of weights; `tokens` and `targets` are
// such arrays or host memory that stays unchanged until synchronize().
//
// Never does: move bytes between ranks.
// Threads: one object, one thread. Errors: device::Error, at once or from a later call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/rope.h"
#include "kernels/step_update.h"
#include "kernels/swiglu.h"

namespace sinew::kernels {

class Accelerator {
 public:
  virtual ~Accelerator() = default;

  // Zeroed memory, aligned to 256 bytes; owns() knows any pointer into it.
  [[nodiscard]] virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  [[nodiscard]] virtual bool owns(const void* pointer) const = 0;
  virtual void synchronize() = 0;

  // Calls that are repeated as a whole, with their arguments and arrays: what these hold is what it
  // is when they are repeated.
  class Recording {
   public:
    virtual ~Recording() = default;
    virtual void replay() = 0;
  };
  // Records what `queue` calls, which is not run. Meanwhile the host neither waits nor uses the
  // arrays nor makes or frees any, and calls take no host memory: what fails by that throws here.
  // Calls must have been made once before, so that their workspaces exist.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& queue) = 0;
  [[nodiscard]] virtual bool recording() const = 0;
  virtual void copy(void* target, const void* source, std::size_t size_bytes) = 0;
  virtual void clear(void* target, std::size_t size_bytes) = 0;
  virtual void fill(float* target, float value, std::int64_t count) = 0;
  virtual void copy_rows(void* target, const void* source, const CopyRows& rows_in_bytes) = 0;
  virtual void convert(const float* source, bf16* target, std::int64_t count) = 0;

  // Out is bf16, or float without an epilogue; nothing is packed.
  virtual void gemm(const GemmCall<bf16, bf16>& call) = 0;
  virtual void gemm(const GemmCall<bf16, float>& call) = 0;
  virtual void add(bf16* target, const bf16* source, std::int64_t count) = 0;
  virtual void add(float* target, const float* source, std::int64_t count) = 0;
  virtual void add_bias(bf16* y, const bf16* bias, std::int64_t rows, std::int64_t channels) = 0;
  virtual void bias_backward(const bf16* d_y, float* d_bias, std::int64_t rows,
                             std::int64_t channels) = 0;
  // Waits for the result. The order of the sum is the device's.
  [[nodiscard]] virtual double sum_of_squares(const bf16* data, std::int64_t count) = 0;
  [[nodiscard]] virtual double sum_of_squares(const float* data, std::int64_t count) = 0;
  // Queued: *sum in the memory of the arrays.
  virtual void sum_of_squares(const float* data, std::int64_t count, double* sum) = 0;
  virtual void note_not_finite(const float* data, const Spans& spans, std::uint64_t* flags) = 0;
  virtual void finish_norm(const double* square_sums, std::int64_t count, const Clip& clip,
                           StepUpdate* update) = 0;
  virtual void gelu_forward(const bf16* x, bf16* y, std::int64_t count) = 0;
  virtual void gelu_backward(const bf16* d_y, const bf16* x, bf16* d_x, std::int64_t count) = 0;
  virtual void layer_norm_forward(NormShape shape, const bf16* x, const bf16* weight,
                                  const bf16* bias, float epsilon, bf16* y, float* mean,
                                  float* rstd) = 0;
  virtual void layer_norm_backward(NormShape shape, const bf16* d_y, const bf16* x,
                                   const bf16* weight, const float* mean, const float* rstd,
                                   Write d_x_mode, bf16* d_x, float* d_weight, float* d_bias) = 0;
  virtual void rms_norm_forward(NormShape shape, const bf16* x, const bf16* weight, float epsilon,
                                bf16* y, float* rstd) = 0;
  virtual void rms_norm_backward(NormShape shape, const bf16* d_y, const bf16* x,
                                 const bf16* weight, const float* rstd, Write d_x_mode, bf16* d_x,
                                 float* d_weight) = 0;
  virtual void swiglu_forward(const GatedShape& shape, const bf16* gate, const bf16* up,
                              bf16* y) = 0;
  virtual void swiglu_backward(const GatedShape& shape, const bf16* d_y, const bf16* gate,
                               const bf16* up, bf16* d_gate, bf16* d_up) = 0;
  virtual void rope(const RopeShape& shape, HeadView<bf16> x, const float* cosine,
                    const float* sine, Turn direction) = 0;
  virtual void dropout(const RandomStream& random, double probability, const DropoutShape& shape,
                       const bf16* x, bf16* y) = 0;
  // From now on dropout draws from streams further on by dropout_stream, and the gradient of the
  // loss has loss_scale instead of the scale it is given: what *update says when they run. Null: as
  // they are given.
  virtual void set_update(const StepUpdate* update) = 0;
  virtual void attention_forward(const AttentionShape& shape, HeadView<const bf16> q,
                                 HeadView<const bf16> k, HeadView<const bf16> v, HeadView<bf16> o,
                                 float* lse) = 0;
  virtual void attention_backward(const AttentionShape& shape, HeadView<const bf16> q,
                                  HeadView<const bf16> k, HeadView<const bf16> v,
                                  HeadView<const bf16> o, const float* lse,
                                  HeadView<const bf16> d_o, HeadView<bf16> d_q, HeadView<bf16> d_k,
                                  HeadView<bf16> d_v) = 0;
  virtual void attention_forward_partial(const AttentionShape& shape, KeySpan keys,
                                         HeadView<const bf16> q, HeadView<const bf16> k,
                                         HeadView<const bf16> v, HeadView<float> o, float* lse) = 0;
  virtual void attention_backward_partial(const AttentionShape& shape, KeySpan keys,
                                          HeadView<const bf16> q, HeadView<const bf16> k,
                                          HeadView<const bf16> v, const float* lse,
                                          const float* row_dot, HeadView<const bf16> d_o,
                                          HeadView<float> d_q, HeadView<float> d_k,
                                          HeadView<float> d_v) = 0;
  virtual void attention_row_dot(const AttentionShape& shape, HeadView<const bf16> o,
                                 HeadView<const bf16> d_o, float* row_dot) = 0;
  virtual void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens,
                                 const bf16* table, const bf16* positions, bf16* y) = 0;
  virtual void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens,
                                  const bf16* d_y, float* d_table, float* d_positions) = 0;
  virtual void cross_entropy_max(const CrossEntropyShape& shape, const bf16* logits,
                                 float* row_max) = 0;
  virtual void cross_entropy_sums(const CrossEntropyShape& shape, const bf16* logits,
                                  const std::int32_t* targets, const float* row_max, float* sum_exp,
                                  float* target_logit) = 0;
  virtual void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets,
                                  const float* sum_exp, const float* target_logit, float* loss) = 0;
  // Queued: *total = sum of loss, [rows], in f64.
  virtual void cross_entropy_total(std::int64_t rows, const float* loss, double* total) = 0;
  virtual void cross_entropy_backward(const CrossEntropyShape& shape, bf16* logits,
                                      const std::int32_t* targets, const float* row_max,
                                      const float* sum_exp, float scale) = 0;
  // update: null, or what options says of the step, in the memory of the arrays.
  virtual void adamw_with_master(const AdamW& options, std::int64_t count, const float* gradient,
                                 float* master, bf16* weight, float* first_moment,
                                 float* second_moment, const StepUpdate* update) = 0;
  virtual void adamw_stochastic(const AdamW& options, const RandomStream& random,
                                std::int64_t first_index, std::int64_t count, const float* gradient,
                                bf16* weight, float* first_moment, float* second_moment,
                                const StepUpdate* update) = 0;
};

}  // namespace sinew::kernels
