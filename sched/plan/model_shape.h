// ModelShape: what the planner must know of a transformer, and how many parameters each rank holds
// of it.
//
// Never does: hold weights; read files (model/config.h does and fills this).
// Threads: plain values.
//
// Symbols, here and in all of plan/: C channels, H heads, K key/value heads, d = C / H, X hidden
// size of the MLP, L layers, V vocabulary, T positions (longest sequence); t, c, p, n the sizes of
// tp, cp, pp, dp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sinew::sched {

enum class Family : std::uint8_t {
  kGpt2,   // layer norm with bias, learned positions, biases everywhere, GELU MLP of two matrices
  kLlama,  // RMS norm, rotary positions, no biases, SwiGLU MLP of three matrices, K <= H
};

struct ModelShape {
  std::string name;
  Family family = Family::kGpt2;
  std::int64_t layers = 0;      // L
  std::int64_t heads = 0;       // H
  std::int64_t kv_heads = 0;    // K; H for kGpt2
  std::int64_t channels = 0;    // C
  std::int64_t hidden = 0;      // X; 4 C for kGpt2
  std::int64_t vocabulary = 0;  // V, rows of the token table as stored
  std::int64_t positions = 0;   // T; a table for kGpt2, only a limit for kLlama
  bool tied = true;             // the head is the token table

  [[nodiscard]] std::int64_t head_size() const { return channels / heads; }
  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// GPT-2's shape from what distinguishes one: K = H, X = 4 C, tied.
[[nodiscard]] ModelShape gpt2_shape(std::string name, std::int64_t layers, std::int64_t heads,
                                    std::int64_t channels, std::int64_t vocabulary = 50257,
                                    std::int64_t positions = 1024);
// gpt2, gpt2-medium, gpt2-large, gpt2-xl: 124M, 350M, 774M, 1558M parameters.
[[nodiscard]] std::span<const ModelShape> gpt2_shapes();

// Throws UsageError unless every size is positive, H divides C, K divides H and K = H, X = 4 C for
// GPT-2.
void validate(const ModelShape& shape);

// The part of the model that a rank holds: some layers, perhaps the two ends, and of each sharded
// matrix the `tp_rank`-th of `tp` parts (partition() of heads, hidden units and vocabulary rows, so
// uneven ones too).
struct ModelPart {
  std::int64_t layers = 0;
  bool has_embedding = false;  // token table, positions
  bool has_head = false;  // final norm, head; a tied head beside the embedding is no second table
  int tp = 1;
  int tp_rank = 0;
};

// The whole model on one rank.
[[nodiscard]] ModelPart whole(const ModelShape& shape);
// The part of `rank`'s stages in a pipeline whose stage -> rank placement is given
// (pipeline/schedule.h): layers are cut by partition() over the stages, the embedding is on the
// first stage and the head on the last.
[[nodiscard]] ModelPart part_of(const ModelShape& shape, std::span<const std::uint16_t> placement,
                                int rank, int tp, int tp_rank);

// Parameters, exact. For the whole of GPT-2: V C + T C + L (12 C^2 + 13 C) + 2 C.
[[nodiscard]] std::int64_t parameter_count(const ModelShape& shape, const ModelPart& part);
[[nodiscard]] std::int64_t parameter_count(const ModelShape& shape);
// Of one layer on one tensor-parallel rank.
[[nodiscard]] std::int64_t layer_parameter_count(const ModelShape& shape, int tp, int tp_rank);
// Token and position tables of the whole model: what N - N_emb leaves out.
[[nodiscard]] std::int64_t embedding_parameter_count(const ModelShape& shape);

}  // namespace sinew::sched
