// sample: text from a checkpoint, on one rank.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "model/bpe.h"
#include "model/checkpoint.h"
#include "model/sample.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "tools/command.h"

namespace sinew::tools {
namespace {

constexpr std::int64_t kByteVocabulary = 256;

struct Options {
  std::string checkpoint;
  model::SampleOptions sample;
  std::string prompt;
  std::string prompt_tokens;
  std::string tokenizer;
  int threads = 1;
};

// Tokens of the prompt, its bytes where there is no tokenizer, or the numbers given.
std::vector<std::int32_t> prompt_of(const Options& options, const model::Bpe* bpe,
                                    std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  if (!options.prompt_tokens.empty()) {
    for (const std::string_view number : split(options.prompt_tokens, ',')) {
      const std::int64_t token = parse_int(number, "--prompt-tokens");
      if (token < 0 || token >= vocabulary) {
        throw UsageError(fmt::format("--prompt-tokens {} is out of range: it must be from 0 to {}",
                                     token, vocabulary - 1));
      }
      tokens.push_back(static_cast<std::int32_t>(token));
    }
    return tokens;
  }
  if (bpe == nullptr && vocabulary != kByteVocabulary) {
    throw UsageError(
        fmt::format("this model's {} tokens are not bytes: give --tokenizer FOLDER or "
                    "--prompt-tokens 1,2,...",
                    vocabulary));
  }
  if (bpe != nullptr) {
    bpe->encode(options.prompt, tokens);
    return tokens;
  }
  for (const char byte : options.prompt) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

void print_token(const Options& options, const model::Bpe* bpe, std::int32_t token) {
  if (bpe != nullptr) {
    const std::string_view text = bpe->text_of(token);
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else if (options.prompt_tokens.empty()) {
    std::putchar(token);
  } else {
    fmt::print(",{}", token);
  }
  std::fflush(stdout);
}

int run_sample(Options& options, const Args& args) {
  if (options.sample.temperature == 0)
    args.refuse_given({"--top-k", "--seed"}, "with --temperature 0: the likeliest token is taken");
  if (options.checkpoint.empty()) {
    throw UsageError("--checkpoint is missing: name the --out folder of a training run");
  }
  const model::Checkpoint checkpoint =
      model::open_checkpoint(options.checkpoint, model::CheckpointUse::kWeights);
  const std::int64_t vocabulary = checkpoint.state.config.vocabulary;
  std::optional<model::Bpe> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = model::Bpe::load(options.tokenizer);
  const model::Bpe* bpe = tokenizer.has_value() ? &*tokenizer : nullptr;
  if (options.prompt.empty()) options.prompt.assign(1, '\n');
  options.sample.prompt = prompt_of(options, bpe, vocabulary);
  bool started = false;
  model::sample(checkpoint, options.sample, {.count = options.threads}, [&](std::int32_t token) {
    if (!std::exchange(started, true))
      fmt::print("{}", options.prompt_tokens.empty() ? options.prompt : options.prompt_tokens);
    print_token(options, bpe, token);
  });
  fmt::print("\n");
  return 0;
}

}  // namespace

Run declare_sample(Args& args) {
  auto o = std::make_shared<Options>();
  args.option("--checkpoint", o->checkpoint,
              "folder of a training run's --out, or one checkpoint in it");
  args.option("--prompt", o->prompt, "text to go on from; none: a new line");
  args.option("--prompt-tokens", o->prompt_tokens, "token numbers to go on from, joined by commas");
  args.option("--tokenizer", o->tokenizer, "folder of GPT-2's vocab.json and merges.txt");
  args.option("--tokens", o->sample.tokens, "how many tokens to sample",
              {.min = 0, .max = 1'000'000});
  args.option("--temperature", o->sample.temperature, "0 takes the likeliest token",
              {.min = 0, .max = 100});
  args.option("--top-k", o->sample.top_k, "among so many likeliest tokens; 0: all", {.min = 0});
  args.option("--seed", o->sample.seed, "of the draws");
  args.exclude("--prompt-tokens", {"--prompt"}, "text is not read where there are token numbers");
  return [o, &args] { return run_sample(*o, args); };
}

}  // namespace sinew::tools
