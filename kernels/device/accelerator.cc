#include "kernels/device/accelerator.h"

#include <algorithm>

#include "kernels/adamw_gpu.h"
#include "kernels/attention_gpu.h"
#include "kernels/cross_entropy_gpu.h"
#include "kernels/device/column_sums.h"
#include "kernels/elementwise_gpu.h"
#include "kernels/embedding_gpu.h"
#include "kernels/gelu_gpu.h"
#include "kernels/gemm_gpu.h"
#include "kernels/layer_norm_gpu.h"
#include "kernels/rms_norm_gpu.h"
#include "kernels/rope_gpu.h"
#include "kernels/step_update_gpu.h"
#include "kernels/swiglu_gpu.h"
#include "sched/base/check.h"

namespace sinew::kernels {

void* DeviceAccelerator::allocate(std::size_t size_bytes) {
  device::Memory memory(size_bytes, device::MemoryKind::kManaged);
  stream_.fill(memory.data(), 0, size_bytes);
  void* data = memory.data();
  owned_.emplace(static_cast<const char*>(data), std::move(memory));
  return data;
}

void DeviceAccelerator::free(void* memory) noexcept {
  owned_.erase(static_cast<const char*>(memory));
}

bool DeviceAccelerator::owns(const void* pointer) const {
  const auto* at = static_cast<const char*>(pointer);
  auto found = owned_.upper_bound(at);
  if (found == owned_.begin()) return false;
  --found;
  return at < found->first + std::max<std::size_t>(found->second.size_bytes(), 1);
}

void DeviceAccelerator::copy(void* target, const void* source, std::size_t size_bytes) {
  stream_.copy(target, source, size_bytes);
}

void DeviceAccelerator::clear(void* target, std::size_t size_bytes) {
  stream_.fill(target, 0, size_bytes);
}

void DeviceAccelerator::fill(float* target, float value, std::int64_t count) {
  kernels::fill(target, value, count, stream_);
}

void DeviceAccelerator::copy_rows(void* target, const void* source, const CopyRows& rows) {
  stream_.copy_rows(target, source,
                    {.rows = static_cast<std::size_t>(rows.rows),
                     .row_bytes = static_cast<std::size_t>(rows.width),
                     .target_stride = static_cast<std::size_t>(rows.target_stride),
                     .source_stride = static_cast<std::size_t>(rows.source_stride)});
}

void DeviceAccelerator::convert(const float* source, bf16* target, std::int64_t count) {
  kernels::convert(source, target, count, stream_);
}

namespace {

class GraphRecording final : public Accelerator::Recording {
 public:
  GraphRecording(device::Graph graph, device::Stream& stream)
      : graph_(std::move(graph)), stream_(stream) {}
  void replay() override { graph_.launch(stream_); }

 private:
  device::Graph graph_;
  device::Stream& stream_;
};

}  // namespace

std::unique_ptr<Accelerator::Recording> DeviceAccelerator::record(
    const std::function<void()>& queue) {
  stream_.synchronize();
  stream_.begin_capture();
  try {
    queue();
  } catch (...) {
    try {
      static_cast<void>(stream_.end_capture());
    } catch (const device::Error&) {
      // What went wrong first is told.
    }
    throw;
  }
  return std::make_unique<GraphRecording>(stream_.end_capture(), stream_);
}

void* DeviceAccelerator::grow(device::Memory& memory, std::size_t size_bytes) {
  if (memory.size_bytes() < size_bytes) {
    outgrown_.push_back(std::move(memory));
    memory = device::Memory(size_bytes);
  }
  return memory.data();
}

float* DeviceAccelerator::workspace(std::int64_t floats) {
  return static_cast<float*>(grow(workspace_, static_cast<std::size_t>(floats) * sizeof(float)));
}

const std::int32_t* DeviceAccelerator::upload(const std::int32_t* values, std::int64_t count) {
  if (owns(values)) return values;
  const std::size_t size_bytes = static_cast<std::size_t>(count) * sizeof(std::int32_t);
  void* target = grow(indices_, size_bytes);
  stream_.copy(target, values, size_bytes);
  return static_cast<const std::int32_t*>(target);
}

void DeviceAccelerator::run_gemm(const GemmShape& shape, float alpha, const bf16* a, const bf16* b,
                                 float beta, void* c, DType c_dtype,
                                 const Epilogue<bf16>& epilogue) {
  if (shape.m == 0 || shape.n == 0) return;
  kernels::gemm({.shape = shape,
                 .alpha = alpha,
                 .a = a,
                 .b = b,
                 .beta = beta,
                 .c = c,
                 .c_dtype = c_dtype,
                 .epilogue = epilogue,
                 .workspace = workspace(gemm_workspace(shape))},
                stream_);
}

void DeviceAccelerator::gemm(const GemmCall<bf16, bf16>& call) {
  CHECK(call.packed == nullptr);
  run_gemm(call.shape, call.alpha, call.a, call.b, call.beta, call.c, DType::kBf16, call.epilogue);
}

void DeviceAccelerator::gemm(const GemmCall<bf16, float>& call) {
  CHECK(call.packed == nullptr);
  const Epilogue<float>& e = call.epilogue;
  CHECK(e.bias == nullptr && e.activation == Activation::kNone && e.pre.data == nullptr);
  CHECK(e.factor.data == nullptr && e.residual.data == nullptr);
  run_gemm(call.shape, call.alpha, call.a, call.b, call.beta, call.c, DType::kF32, {});
}

void DeviceAccelerator::add(bf16* target, const bf16* source, std::int64_t count) {
  kernels::add(target, source, count, stream_);
}

void DeviceAccelerator::add(float* target, const float* source, std::int64_t count) {
  kernels::add(target, source, count, stream_);
}

void DeviceAccelerator::add_bias(bf16* y, const bf16* bias, std::int64_t rows,
                                 std::int64_t channels) {
  kernels::add_bias(y, bias, rows, channels, stream_);
}

void DeviceAccelerator::bias_backward(const bf16* d_y, float* d_bias, std::int64_t rows,
                                      std::int64_t channels) {
  kernels::bias_backward(d_y, d_bias, rows, channels,
                         workspace(column_sums_workspace(rows, channels)), stream_);
}

template <typename T>
double DeviceAccelerator::square_sum(const T* data, std::int64_t count) {
  const std::int64_t partial = sum_of_squares_workspace(count);
  auto* memory = static_cast<double*>(
      grow(workspace_, static_cast<std::size_t>(partial + 1) * sizeof(double)));
  kernels::sum_of_squares(data, count, memory, memory + 1, stream_);
  double result = 0;
  stream_.copy(&result, memory, sizeof result);
  stream_.synchronize();
  return result;
}

double DeviceAccelerator::sum_of_squares(const bf16* data, std::int64_t count) {
  return square_sum(data, count);
}

double DeviceAccelerator::sum_of_squares(const float* data, std::int64_t count) {
  return square_sum(data, count);
}

void DeviceAccelerator::sum_of_squares(const float* data, std::int64_t count, double* sum) {
  const auto partial = static_cast<std::size_t>(sum_of_squares_workspace(count));
  auto* memory = static_cast<double*>(grow(workspace_, partial * sizeof(double)));
  kernels::sum_of_squares(data, count, sum, memory, stream_);
}

void DeviceAccelerator::note_not_finite(const float* data, const Spans& spans,
                                        std::uint64_t* flags) {
  kernels::note_not_finite(data, spans, flags, stream_);
}

void DeviceAccelerator::finish_norm(const double* square_sums, std::int64_t count, const Clip& clip,
                                    StepUpdate* update) {
  kernels::finish_norm(square_sums, count, clip, update, stream_);
}

void DeviceAccelerator::gelu_forward(const bf16* x, bf16* y, std::int64_t count) {
  kernels::gelu_forward(x, y, count, stream_);
}

void DeviceAccelerator::gelu_backward(const bf16* d_y, const bf16* x, bf16* d_x,
                                      std::int64_t count) {
  kernels::gelu_backward(d_y, x, d_x, count, stream_);
}

void DeviceAccelerator::layer_norm_forward(NormShape shape, const bf16* x, const bf16* weight,
                                           const bf16* bias, float epsilon, bf16* y, float* mean,
                                           float* rstd) {
  kernels::layer_norm_forward(shape, x, weight, bias, epsilon, y, mean, rstd, stream_);
}

void DeviceAccelerator::layer_norm_backward(NormShape shape, const bf16* d_y, const bf16* x,
                                            const bf16* weight, const float* mean,
                                            const float* rstd, Write d_x_mode, bf16* d_x,
                                            float* d_weight, float* d_bias) {
  kernels::layer_norm_backward(shape, d_y, x, weight, mean, rstd, d_x_mode, d_x, d_weight, d_bias,
                               workspace(layer_norm_backward_workspace(shape)), stream_);
}

void DeviceAccelerator::rms_norm_forward(NormShape shape, const bf16* x, const bf16* weight,
                                         float epsilon, bf16* y, float* rstd) {
  kernels::rms_norm_forward(shape, x, weight, epsilon, y, rstd, stream_);
}

void DeviceAccelerator::rms_norm_backward(NormShape shape, const bf16* d_y, const bf16* x,
                                          const bf16* weight, const float* rstd, Write d_x_mode,
                                          bf16* d_x, float* d_weight) {
  kernels::rms_norm_backward(shape, d_y, x, weight, rstd, d_x_mode, d_x, d_weight,
                             workspace(rms_norm_backward_workspace(shape)), stream_);
}

void DeviceAccelerator::swiglu_forward(const GatedShape& shape, const bf16* gate, const bf16* up,
                                       bf16* y) {
  kernels::swiglu_forward(shape, gate, up, y, stream_);
}

void DeviceAccelerator::swiglu_backward(const GatedShape& shape, const bf16* d_y, const bf16* gate,
                                        const bf16* up, bf16* d_gate, bf16* d_up) {
  kernels::swiglu_backward(shape, d_y, gate, up, d_gate, d_up, stream_);
}

void DeviceAccelerator::rope(const RopeShape& shape, HeadView<bf16> x, const float* cosine,
                             const float* sine, Turn direction) {
  kernels::rope(shape, x, cosine, sine, direction, stream_);
}

void DeviceAccelerator::dropout(const RandomStream& random, double probability,
                                const DropoutShape& shape, const bf16* x, bf16* y) {
  kernels::dropout(random, probability, shape, x, y, stream_,
                   update_ != nullptr ? &update_->dropout_stream : nullptr);
}

void DeviceAccelerator::attention_forward(const AttentionShape& shape, HeadView<const bf16> q,
                                          HeadView<const bf16> k, HeadView<const bf16> v,
                                          HeadView<bf16> o, float* lse) {
  kernels::attention_forward(shape, q, k, v, o, lse, stream_);
}

void DeviceAccelerator::attention_backward(const AttentionShape& shape, HeadView<const bf16> q,
                                           HeadView<const bf16> k, HeadView<const bf16> v,
                                           HeadView<const bf16> o, const float* lse,
                                           HeadView<const bf16> d_o, HeadView<bf16> d_q,
                                           HeadView<bf16> d_k, HeadView<bf16> d_v) {
  kernels::attention_backward(shape, q, k, v, o, lse, d_o, d_q, d_k, d_v,
                              workspace(shape.batch * shape.heads * shape.time), stream_);
}

void DeviceAccelerator::attention_forward_partial(const AttentionShape& shape, KeySpan keys,
                                                  HeadView<const bf16> q, HeadView<const bf16> k,
                                                  HeadView<const bf16> v, HeadView<float> o,
                                                  float* lse) {
  kernels::attention_forward_partial(shape, keys, q, k, v, o, lse, stream_);
}

void DeviceAccelerator::attention_backward_partial(const AttentionShape& shape, KeySpan keys,
                                                   HeadView<const bf16> q, HeadView<const bf16> k,
                                                   HeadView<const bf16> v, const float* lse,
                                                   const float* row_dot, HeadView<const bf16> d_o,
                                                   HeadView<float> d_q, HeadView<float> d_k,
                                                   HeadView<float> d_v) {
  kernels::attention_backward_partial(shape, keys, q, k, v, lse, row_dot, d_o, d_q, d_k, d_v,
                                      stream_);
}

void DeviceAccelerator::attention_row_dot(const AttentionShape& shape, HeadView<const bf16> o,
                                          HeadView<const bf16> d_o, float* row_dot) {
  kernels::attention_row_dot<bf16>(shape, o, d_o, row_dot, stream_);
}

void DeviceAccelerator::embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens,
                                          const bf16* table, const bf16* positions, bf16* y) {
  kernels::embedding_forward(shape, upload(tokens, shape.batch * shape.time), table, positions, y,
                             stream_);
}

void DeviceAccelerator::embedding_backward(const EmbeddingShape& shape, const std::int32_t* tokens,
                                           const bf16* d_y, float* d_table, float* d_positions) {
  kernels::embedding_backward(shape, upload(tokens, shape.batch * shape.time), d_y, d_table,
                              d_positions, stream_);
}

void DeviceAccelerator::cross_entropy_max(const CrossEntropyShape& shape, const bf16* logits,
                                          float* row_max) {
  kernels::cross_entropy_max(shape, logits, row_max, stream_);
}

void DeviceAccelerator::cross_entropy_sums(const CrossEntropyShape& shape, const bf16* logits,
                                           const std::int32_t* targets, const float* row_max,
                                           float* sum_exp, float* target_logit) {
  kernels::cross_entropy_sums(shape, logits, upload(targets, shape.rows), row_max, sum_exp,
                              target_logit, stream_);
}

void DeviceAccelerator::cross_entropy_loss(std::int64_t rows, const std::int32_t* targets,
                                           const float* sum_exp, const float* target_logit,
                                           float* loss) {
  kernels::cross_entropy_loss(rows, upload(targets, rows), sum_exp, target_logit, loss, stream_);
}

void DeviceAccelerator::cross_entropy_total(std::int64_t rows, const float* loss, double* total) {
  kernels::cross_entropy_total(rows, loss, total, stream_);
}

void DeviceAccelerator::cross_entropy_backward(const CrossEntropyShape& shape, bf16* logits,
                                               const std::int32_t* targets, const float* row_max,
                                               const float* sum_exp, float scale) {
  kernels::cross_entropy_backward(shape, logits, upload(targets, shape.rows), row_max, sum_exp,
                                  scale, stream_,
                                  update_ != nullptr ? &update_->loss_scale : nullptr);
}

void DeviceAccelerator::adamw_with_master(const AdamW& options, std::int64_t count,
                                          const float* gradient, float* master, bf16* weight,
                                          float* first_moment, float* second_moment,
                                          const StepUpdate* update) {
  kernels::adamw(options, count, gradient, master, first_moment, second_moment, weight, stream_,
                 update);
}

void DeviceAccelerator::adamw_stochastic(const AdamW& options, const RandomStream& random,
                                         std::int64_t first_index, std::int64_t count,
                                         const float* gradient, bf16* weight, float* first_moment,
                                         float* second_moment, const StepUpdate* update) {
  kernels::adamw_stochastic(options, random, first_index, count, gradient, weight, first_moment,
                            second_moment, stream_, update);
}

}  // namespace sinew::kernels
