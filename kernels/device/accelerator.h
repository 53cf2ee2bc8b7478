// DeviceAccelerator: kernels/accelerator.h on the selected device: the kernels of kernels/*.cu on
// one stream, and the workspaces they need.
//
// One workspace serves all calls, since a stream runs them in order; it grows to the largest. What
// a recording may use is kept.
#pragma once

#include <map>
#include <vector>

#include "kernels/accelerator.h"
#include "kernels/device/runtime.h"

namespace sinew::kernels {

class DeviceAccelerator final : public Accelerator {
 public:
  DeviceAccelerator() = default;

  [[nodiscard]] device::Stream& stream() { return stream_; }

  [[nodiscard]] void* allocate(std::size_t size_bytes) override;
  void free(void* memory) noexcept override;
  [[nodiscard]] bool owns(const void* pointer) const override;
  void synchronize() override { stream_.synchronize(); }
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& queue) override;
  [[nodiscard]] bool recording() const override { return stream_.recording(); }
  void copy(void* target, const void* source, std::size_t size_bytes) override;
  void clear(void* target, std::size_t size_bytes) override;
  void fill(float* target, float value, std::int64_t count) override;
  void copy_rows(void* target, const void* source, const CopyRows& rows_in_bytes) override;
  void convert(const float* source, bf16* target, std::int64_t count) override;

  void gemm(const GemmCall<bf16, bf16>& call) override;
  void gemm(const GemmCall<bf16, float>& call) override;
  void add(bf16* target, const bf16* source, std::int64_t count) override;
  void add(float* target, const float* source, std::int64_t count) override;
  void add_bias(bf16* y, const bf16* bias, std::int64_t rows, std::int64_t channels) override;
  void bias_backward(const bf16* d_y, float* d_bias, std::int64_t rows,
                     std::int64_t channels) override;
  [[nodiscard]] double sum_of_squares(const bf16* data, std::int64_t count) override;
  [[nodiscard]] double sum_of_squares(const float* data, std::int64_t count) override;
  void sum_of_squares(const float* data, std::int64_t count, double* sum) override;
  void note_not_finite(const float* data, const Spans& spans, std::uint64_t* flags) override;
  void finish_norm(const double* square_sums, std::int64_t count, const Clip& clip,
                   StepUpdate* update) override;
  void gelu_forward(const bf16* x, bf16* y, std::int64_t count) override;
  void gelu_backward(const bf16* d_y, const bf16* x, bf16* d_x, std::int64_t count) override;
  void layer_norm_forward(NormShape shape, const bf16* x, const bf16* weight, const bf16* bias,
                          float epsilon, bf16* y, float* mean, float* rstd) override;
  void layer_norm_backward(NormShape shape, const bf16* d_y, const bf16* x, const bf16* weight,
                           const float* mean, const float* rstd, Write d_x_mode, bf16* d_x,
                           float* d_weight, float* d_bias) override;
  void rms_norm_forward(NormShape shape, const bf16* x, const bf16* weight, float epsilon, bf16* y,
                        float* rstd) override;
  void rms_norm_backward(NormShape shape, const bf16* d_y, const bf16* x, const bf16* weight,
                         const float* rstd, Write d_x_mode, bf16* d_x, float* d_weight) override;
  void swiglu_forward(const GatedShape& shape, const bf16* gate, const bf16* up, bf16* y) override;
  void swiglu_backward(const GatedShape& shape, const bf16* d_y, const bf16* gate, const bf16* up,
                       bf16* d_gate, bf16* d_up) override;
  void rope(const RopeShape& shape, HeadView<bf16> x, const float* cosine, const float* sine,
            Turn direction) override;
  void dropout(const RandomStream& random, double probability, const DropoutShape& shape,
               const bf16* x, bf16* y) override;
  void set_update(const StepUpdate* update) override { update_ = update; }
  void attention_forward(const AttentionShape& shape, HeadView<const bf16> q,
                         HeadView<const bf16> k, HeadView<const bf16> v, HeadView<bf16> o,
                         float* lse) override;
  void attention_backward(const AttentionShape& shape, HeadView<const bf16> q,
                          HeadView<const bf16> k, HeadView<const bf16> v, HeadView<const bf16> o,
                          const float* lse, HeadView<const bf16> d_o, HeadView<bf16> d_q,
                          HeadView<bf16> d_k, HeadView<bf16> d_v) override;
  void attention_forward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                                 HeadView<const bf16> k, HeadView<const bf16> v, HeadView<float> o,
                                 float* lse) override;
  void attention_backward_partial(const AttentionShape& shape, KeySpan keys, HeadView<const bf16> q,
                                  HeadView<const bf16> k, HeadView<const bf16> v, const float* lse,
                                  const float* row_dot, HeadView<const bf16> d_o,
                                  HeadView<float> d_q, HeadView<float> d_k,
                                  HeadView<float> d_v) override;
  void attention_row_dot(const AttentionShape& shape, HeadView<const bf16> o,
                         HeadView<const bf16> d_o, float* row_dot) override;
  void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const bf16* table,
                         const bf16* positions, bf16* y) override;
  void embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens, const bf16* d_y,
                          float* d_table, float* d_positions) override;
  void cross_entropy_max(const CrossEntropyShape& shape, const bf16* logits,
                         float* row_max) override;
  void cross_entropy_sums(const CrossEntropyShape& shape, const bf16* logits,
                          const std::int32_t* targets, const float* row_max, float* sum_exp,
                          float* target_logit) override;
  void cross_entropy_loss(std::int64_t rows, const std::int32_t* targets, const float* sum_exp,
                          const float* target_logit, float* loss) override;
  void cross_entropy_total(std::int64_t rows, const float* loss, double* total) override;
  void cross_entropy_backward(const CrossEntropyShape& shape, bf16* logits,
                              const std::int32_t* targets, const float* row_max,
                              const float* sum_exp, float scale) override;
  void adamw_with_master(const AdamW& options, std::int64_t count, const float* gradient,
                         float* master, bf16* weight, float* first_moment, float* second_moment,
                         const StepUpdate* update) override;
  void adamw_stochastic(const AdamW& options, const RandomStream& random, std::int64_t first_index,
                        std::int64_t count, const float* gradient, bf16* weight,
                        float* first_moment, float* second_moment,
                        const StepUpdate* update) override;

 private:
  // At least size_bytes, valid until the next call of the same function.
  void* grow(device::Memory& memory, std::size_t size_bytes);
  [[nodiscard]] float* workspace(std::int64_t floats);
  // Values of the host where kernels find them; an array stays where it is.
  [[nodiscard]] const std::int32_t* upload(const std::int32_t* values, std::int64_t count);
  void run_gemm(const GemmShape& shape, float alpha, const bf16* a, const bf16* b, float beta,
                void* c, DType c_dtype, const Epilogue<bf16>& epilogue);
  template <typename T>
  [[nodiscard]] double square_sum(const T* data, std::int64_t count);

  device::Stream stream_;
  device::Memory workspace_;
  device::Memory indices_;                       // tokens or targets of the call that is queued
  std::map<const char*, device::Memory> owned_;  // by address
  const StepUpdate* update_ = nullptr;
  std::vector<device::Memory> outgrown_;  // queued and recorded work uses them
};

}  // namespace sinew::kernels
