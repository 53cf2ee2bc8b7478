#include "tests/gpu/ptx/interpreter.h"

#include <dlfcn.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "sched/base/error.h"
#include "tests/gpu/ptx/thread.h"

namespace sinew::ptx {

namespace {

constexpr std::size_t kParameterAlignment = 64;

std::string name_of(const void* function) {
  Dl_info info{};
  const bool found =
      dladdr(function, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == function;
  return found ? info.dli_sname : "";
}

// What the blocks of one launch share.
class Run {
 public:
  Run(const Function& function, const twin::KernelCall& call, History* history, std::uint64_t seed)
      : function_(function),
        memory_(history, seed),
        parameters_(call.parameters.size() + kParameterAlignment) {
    void* aligned = parameters_.data();
    std::size_t space = parameters_.size();
    parameter_block_ =
        static_cast<char*>(std::align(kParameterAlignment, call.parameters.size(), aligned, space));
    std::memcpy(parameter_block_, call.parameters.data(), call.parameters.size());
  }

  static void thread(const void* argument) { (*static_cast<Run* const*>(argument))->execute(); }

  [[nodiscard]] std::uint64_t instructions() const { return instructions_; }
  // The instruction that was executed last.
  [[nodiscard]] std::string where() const {
    return last_ == nullptr ? "" : "\n  PTX: " + function_.file + ":" + std::to_string(last_->line);
  }

 private:
  struct BlockStores {
    BlockView view;
    unsigned alive = 0;
  };

  void execute() {
    Thread& thread = begin();
    while (thread.next != nullptr) {
      const Instruction& i = *thread.next++;
      if (i.guard >= 0 && in<bool>(thread, i.guard) == i.guard_negated) continue;
      last_ = &i;
      ++instructions_;
      i.run(thread, i);
    }
    end(thread);
  }

  Thread& begin() {
    if (idle_.empty()) idle_.push_back(&threads_.emplace_back());
    Thread& thread = *idle_.back();
    idle_.pop_back();
    thread.function = &function_;
    thread.next = function_.code.data();
    thread.memory = &memory_;
    thread.arena = twin::self().block->arena;
    thread.looked = false;
    thread.sum_slots.clear();
    thread.slots = function_.initial;
    thread.local.assign(function_.local_bytes / sizeof(std::uint64_t) + 1, ~std::uint64_t{0});
    BlockStores& block = blocks_[block_number()];
    ++block.alive;
    thread.view = memory_.view_of(block.view);
    for (const auto& [slot, special] : function_.specials)
      out<std::uint32_t>(thread, slot, value_of(special));
    for (const SymbolSlot& symbol : function_.symbols)
      out<std::uint64_t>(thread, symbol.slot, address_of(thread, symbol));
    return thread;
  }

  void end(Thread& thread) {
    memory_.share(thread.view);
    const std::uint64_t number = block_number();
    if (--blocks_[number].alive == 0) memory_.release(thread.view);
    idle_.push_back(&thread);
  }

  static std::uint64_t block_number() {
    const twin::Thread& self = *twin::current;
    return (std::uint64_t{self.block_index.z} * self.grid_extent.y + self.block_index.y) *
               self.grid_extent.x +
           self.block_index.x;
  }

  static unsigned value_of(Special special) {
    const twin::Thread& self = *twin::current;
    const twin::Index* const of[] = {&self.thread_index, &self.block_index, &self.block_extent,
                                     &self.grid_extent};
    const auto kind = static_cast<unsigned>(special);
    const twin::Index& index = *of[kind / 3];
    return kind % 3 == 0 ? index.x : kind % 3 == 1 ? index.y : index.z;
  }

  [[nodiscard]] std::uint64_t address_of(Thread& thread, const SymbolSlot& symbol) const {
    switch (symbol.kind) {
      case SymbolKind::kParameter:
        return reinterpret_cast<std::uint64_t>(parameter_block_ + symbol.offset);
      case SymbolKind::kLocal:
        return reinterpret_cast<std::uint64_t>(thread.local.data()) + symbol.offset;
      case SymbolKind::kDynamicShared:
        return twin::shared_address(twin::shared_dynamic());
      case SymbolKind::kShared: {
        const Variable& variable = function_.shared[symbol.index];
        return twin::shared_address(
            twin::shared_object(&variable, variable.size_bytes, variable.alignment));
      }
    }
    return 0;
  }

  const Function& function_;
  Memory memory_;
  std::vector<std::byte> parameters_;
  char* parameter_block_ = nullptr;
  const Instruction* last_ = nullptr;
  std::uint64_t instructions_ = 0;
  std::deque<Thread> threads_;
  std::vector<Thread*> idle_;
  std::map<std::uint64_t, BlockStores> blocks_;
};

}  // namespace

Interpreter::Interpreter(Options options) : options_(std::move(options)) {
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, missing)) {
    if (entry.path().extension() != ".ptx") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    sources_.push_back(std::make_unique<Source>(entry.path().filename().string(), text.str()));
    const int target = sources_.back()->target();
    if (target_ != 0 && target != target_)
      throw Error("PTX: " + options_.folder + " holds several architectures");
    target_ = target;
    for (const std::string& name : sources_.back()->entries())
      source_of_[name] = sources_.back().get();
  }
  if (source_of_.empty())
    throw Error("PTX: " + options_.folder + " holds no .ptx file with a kernel");
}

std::vector<std::string> Interpreter::entries() const {
  std::vector<std::string> names;
  for (const auto& [name, source] : source_of_) names.push_back(name);
  return names;
}

const Function& Interpreter::function(const std::string& entry) {
  const std::lock_guard<std::mutex> guard(lock_);
  std::unique_ptr<Function>& known = functions_[entry];
  if (known == nullptr) {
    const auto source = source_of_.find(entry);
    if (source == source_of_.end())
      throw Error("PTX: " + options_.folder + " holds no kernel '" + entry + "'");
    known = std::make_unique<Function>(decode(*source->second, entry, options_.change));
  }
  return *known;
}

std::string Interpreter::run(twin::Engine& engine, const device::LaunchShape& shape,
                             const twin::Config& config, std::uint64_t serial,
                             const twin::KernelCall& call) {
  const Function* function = nullptr;
  try {
    function = &this->function(name_of(call.function));
  } catch (const Error& error) {
    return error.what();
  }
  if (function->parameter_bytes != call.parameters.size()) {
    return "PTX: " + function->name + " has parameters of " +
           std::to_string(function->parameter_bytes) + " bytes and was given " +
           std::to_string(call.parameters.size());
  }
  if (shape.block.count() > function->threads_max) {
    return "PTX: " + function->name + " is compiled for at most " +
           std::to_string(function->threads_max) + " threads and was given " +
           std::to_string(shape.block.count());
  }
  Run run(*function, call, options_.weak ? &history_ : nullptr, config.seed ^ serial << 32);
  Run* const argument = &run;
  const std::string error = engine.run(shape, config, serial, {&Run::thread, &argument});
  ++launches_;
  instructions_ += run.instructions();
  return error.empty() ? error : error + run.where();
}

}  // namespace sinew::ptx
