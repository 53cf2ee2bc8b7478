// Memory of a rank by formula: static bytes (parameters, gradients, optimizer state) and
// activations.
//
// Never does: measure (the arenas of model/ count their own bytes and are held against this).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/plan/model_shape.h"

namespace sinew::sched {

// Which of a rank's arrays are cut over the data-parallel ranks (ZeRO, Rajbhandari et al., SC
// 2020).
enum class Zero : std::uint8_t {
  kNone,        // every rank holds everything
  kOptimizer,   // stage 1
  kGradients,   // stage 2: and gradients
  kParameters,  // stage 3: and parameters
};
// Throws UsageError unless 0..3.
[[nodiscard]] Zero parse_zero(std::int64_t stage);

// Bytes of one parameter in each role.
struct Precision {
  std::string_view name;
  int parameter = 4;
  int gradient = 4;
  int optimizer = 8;  // moments; with 16-bit parameters also their f32 master copy
  // Of a norm's statistics, log-sums, losses: never less than f32.
  [[nodiscard]] constexpr int statistic() const { return parameter < 4 ? 4 : parameter; }
};
inline constexpr Precision kAllF32 = {"f32", 4, 4, 8};
inline constexpr Precision kBf16 = {"bf16", 2, 2, 12};                   // 16-bit gradients
inline constexpr Precision kBf16MainGradients = {"bf16-f32", 2, 4, 12};  // gradients summed in f32
inline constexpr Precision kBf16Stochastic = {"bf16-sr", 2, 4, 8};       // and no master copy
inline constexpr Precision kAllF64 = {"f64", 8, 8, 16};

struct StaticBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t optimizer = 0;
  [[nodiscard]] std::int64_t total() const { return parameters + gradients + optimizer; }
  friend bool operator==(const StaticBytes&, const StaticBytes&) = default;
};

// Of `count` parameters (those of the rank's shard of the model, padding included) when `ranks` =
// dp x cp share them and this rank is the `index`-th: cut arrays hold partition(count, ranks,
// index). Exact for any remainder. In multiples of the parameters' number, for f32, bf16, bf16 with
// f32 gradients, and that without master copies:
//   none  16        16         18         14
//   1     8 + 8/N   4 + 12/N   6 + 12/N   6 + 8/N
//   2     4 + 12/N  2 + 14/N   2 + 16/N   2 + 12/N
//   3     16/N      16/N       18/N       14/N
[[nodiscard]] StaticBytes static_bytes(std::int64_t count, Zero zero, const Precision& precision,
                                       std::int64_t ranks, std::int64_t index);
// What ZeRO 2 and 3 hold beyond that: the whole gradient of the largest unit, once being computed
// and once being scattered; ZeRO 3 also the gathered parameters of the largest unit, once in use
// and `prefetch` times on their way. 0 for the other stages.
[[nodiscard]] std::int64_t gathered_bytes(Zero zero, std::int64_t largest_unit, int prefetch,
                                          const Precision& precision);

// In the place of ZeRO 3's gathered parameters where they are kept from forward to backward: those
// of all of the rank's layers, and twice the largest of the ends' units, which are used once.
[[nodiscard]] std::int64_t kept_bytes(std::int64_t layers, std::int64_t largest_end,
                                      const Precision& precision);

// Activations saved for the backward of one layer and microbatch with 16-bit values and one byte
// per dropout mask element: the formulas of Korthikanti et al., Reducing activation recomputation
// in large transformer models, MLSys 2023, with T the sequence, B the microbatch:
//   none or tensor parallel   T B C (10 + 24/t + 5 H T/(C t))
//   selective                 without the last term: attention's matrices are computed again
//   full                      2 T B C: the layer's input alone
//   sequence parallel         the 10 is divided by t as well, as is full's 2
enum class Recompute : std::uint8_t { kNone, kSelective, kFull };
// Throws UsageError naming none, selective, full.
[[nodiscard]] Recompute parse_recompute(std::string_view name);
[[nodiscard]] std::string_view name_of(Recompute recompute);

struct ActivationShape {
  std::int64_t batch = 1;  // B, sequences of a microbatch
  std::int64_t time = 1;   // T, positions on this rank: the sequence over cp
  int tp = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
};
[[nodiscard]] double paper_activation_bytes(const ModelShape& model, const ActivationShape& shape);

// What an implementation saves, tensor by tensor: the general form. The bytes of a rank are then
//   sum over its layers x microbatches held x sum of elements x element size.
struct SavedTensor {
  std::string name;
  std::int64_t elements = 0;
  int element_bytes = 4;
};
[[nodiscard]] std::int64_t saved_bytes(std::span<const SavedTensor> tensors);
// What the layers of model/ save per microbatch: online-softmax attention keeps one log-sum per
// query and head instead of scores, and there are no masks without dropout. Inputs and norms are
// whole (cut by t under sequence parallelism), attention and MLP are sharded:
//   GPT-2  T B (4 C + 12 C/t + H/t + 4) elements
//   Llama  T B (4 C + (2 C + 2 K d + 3 X + H)/t + 2)
// of which the log-sums (H/t) and the norms' statistics (4 or 2) are of precision.statistic().
// What the paper's selective recomputation drops, attention's matrices, is never there; selective
// here drops what can be computed again without a product of matrices: the outputs of the norms and
// of the activation. Full leaves the layer's input. tp must divide heads, key/value heads (or the
// other way round: one copy each) and hidden units.
[[nodiscard]] std::vector<SavedTensor> layer_saved_tensors(const ModelShape& model,
                                                           const ActivationShape& shape,
                                                           const Precision& precision);

}  // namespace sinew::sched
