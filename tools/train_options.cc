#include "tools/train_options.h"

#include "tools/train_memory.h"

namespace sinew::tools {

void bind_shape_options(Args& args, model::TrainOptions& o) {
  args.option("--seq", o.seq, "tokens of a sequence; 0: the model's longest", {.min = 0});
  args.option("--dtype", o.dtype, "f32, f64, or bf16 with f32 masters and gradients");
  args.option(
      "--rounding", o.rounding,
      "of bf16 weights: nearest, of f32 masters; or stochastic, by chance and without them");
  args.option("--gradients", o.gradients,
              "type that gradients are kept and summed in: auto (f32, of f64 f64), or bf16, with "
              "--dtype bf16");
  args.option(
      "--recompute", o.recompute,
      "what is computed again instead of kept: none, selective or full; or one for each layer, "
      "joined by commas");
  args.option("--order", o.order,
              "axes from the closest ranks to the farthest; those of size 1 may be left out");
  args.option("--cp-mode", o.cp_mode,
              "positions of a context rank: zigzag, contiguous, striped (ring attention), ulysses");
  args.flag("--sequence-parallel", o.sequence_parallel,
            "tensor ranks share the rows of norms and dropout");
  args.option("--shard", o.shard,
              "data ranks (of dp x cp) that share what ZeRO cuts, the groups of them hold the "
              "same; 0: all",
              {.min = 0});
  args.choice("--reshard-after", o.reshard_after, {"forward", "backward"},
              "under ZeRO 3: when layers' gathered weights are freed, after forward to be gathered "
              "again");
}

void bind_train_options(Args& args, model::TrainOptions& o) {
  args.option("--model", o.model, model_help() + " or llm.c .bin file");
  args.option("--data", o.data, "text file, .jsonl, or .bin file of tokens");
  args.option("--data-format", o.data_format,
              "auto (by name and content), text, jsonl, llmc, nanogpt or megatron");
  args.option("--tokenizer", o.tokenizer,
              "folder of GPT-2's vocab.json and merges.txt, for text; none: bytes are tokens");
  args.option("--tp", o.tp, "tensor-parallel ranks", {.min = 1});
  args.option("--cp", o.cp, "context-parallel ranks", {.min = 1});
  args.option("--row-chunks", o.row_chunks,
              "with --sequence-parallel: pieces of a layer's products, each summed over the tensor "
              "ranks while the next is computed",
              {.min = 1});
  args.option("--pp", o.pp, "pipeline stages", {.min = 1});
  args.option("--dp", o.dp, "data-parallel replicas; 0: what the ranks leave", {.min = 0});
  args.option("--zero", o.zero,
              "what data parallelism cuts: 0 nothing, 1 optimizer states, 2 and gradients, "
              "3 and weights",
              {.min = 0});
  bind_shape_options(args, o);
  args.option("--schedule", o.schedule, "pipeline schedule, or the path of a file that holds one");
  args.option("--chunks", o.chunks, "stages of a pipeline rank; 0: the schedule's usual number",
              {.min = 0});
  args.option("--microbatches", o.microbatches,
              "per replica; 0: chosen, two a stage where they divide the batch", {.min = 0});
  args.option("--batch", o.batch, "sequences of the whole step, over all ranks", {.min = 1});
  args.option("--steps", o.steps,
              "steps in all, those of a resumed run included; 0: only a validation", {.min = 0});
  args.option("--lr", o.lr, "highest learning rate");
  args.option("--min-lr", o.min_lr,
              "where the cosine of the learning rate ends, a step after the last; negative: a "
              "tenth of --lr");
  args.option("--warmup", o.warmup, "steps of linear warm-up, at most --steps", {.min = 0});
  args.option("--weight-decay", o.weight_decay, "of matrices and tables");
  args.option("--beta1", o.beta1, "decay of the first moment");
  args.option("--beta2", o.beta2, "decay of the second moment");
  args.option("--eps", o.eps, "added to the root of the second moment");
  args.option("--clip", o.clip, "largest norm of the gradient; 0: none");
  args.option("--dropout", o.dropout, "share of activations dropped");
  args.option("--seed", o.seed, "of weights, data order and masks");
  args.option("--offload", o.offload,
              "folder whose files hold moments and masters: memory that the system may write out");
  args.flag("--graph", o.graph,
            "on a device: the second step is recorded, and later ones repeat it as one call");
  args.option(
      "--init", o.init,
      "start from the weights of this .safetensors file, folder or .index.json of several, or .bin "
      "file of llm.c");
  args.option("--resume", o.resume,
              "go on from the newest checkpoint in this folder: the same model, seed, data and "
              "--seq; layout, "
              "batch, types and rates may be others");
  args.option("--out", o.out, "folder of checkpoints, metrics.jsonl and summary.json");
  args.option("--save-every", o.save_every, "steps between checkpoints; 0: at the end only",
              {.min = 0});
  args.option("--keep-last", o.keep_last,
              "checkpoints that stay in --out, older ones are removed; 0: all", {.min = 0});
  args.flag("--async-save", o.async_save,
            "checkpoints are written while training goes on, from a copy of weights and moments");
  args.option("--eval-every", o.eval_every, "steps between validations; 0: at the end only",
              {.min = 0});
  args.option("--eval-windows", o.eval_windows,
              "sequences of a validation, at most those kept for it", {.min = 1});
  args.option("--validation-fraction", o.validation_fraction,
              "last part of the data, kept for validation");
  args.option("--threads", o.threads, "per rank; 0: usable cores over local ranks", {.min = 0});
}

}  // namespace sinew::tools
