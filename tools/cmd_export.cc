// export: a checkpoint's model as one file of another program.
#include <fmt/format.h>

#include <memory>

#include "model/export.h"
#include "sched/base/error.h"
#include "tools/command.h"
#include "tools/escape.h"
#include "tools/output.h"

namespace sinew::tools {
namespace {

struct Options {
  std::string checkpoint;
  std::string to;
  std::string dtype = "f32";
};

int run_export(const Options& options) {
  if (options.checkpoint.empty())
    throw UsageError("--checkpoint is missing: name the --out folder of a training run");
  if (options.to.empty())
    throw UsageError("--to is missing: name the .safetensors or (llm.c) .bin file to write");
  const Output looked_at("--to", options.to);
  const DType dtype = parse_dtype(options.dtype);
  model::check_export(options.to, dtype);
  const model::Checkpoint checkpoint =
      model::open_checkpoint(options.checkpoint, model::CheckpointUse::kWeights);
  model::export_weights(checkpoint, options.to, dtype);
  fmt::print("{}: model {} of step {}, {}\n", escaped(options.to),
             escaped(checkpoint.state.config.name), checkpoint.state.step, options.dtype);
  return 0;
}

}  // namespace

Run declare_export(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--checkpoint", o->checkpoint,
              "folder of a training run's --out, or one checkpoint in it");
  args.option("--to", o->to, "file to write: .safetensors (Hugging Face) or .bin (llm.c)");
  args.choice("--dtype", o->dtype, {"f32", "bf16", "f64"},
              "type of the weights, f64 as safetensors only");
  return [o] { return run_export(*o); };
}

}  // namespace sinew::tools
