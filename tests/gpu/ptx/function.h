// A kernel of PTX text, decoded: instructions with a handler each, whose operands are numbers of
// slots.
//
// A slot is 64 bits. Registers, immediate values, special registers and addresses of symbols are
// all slots, so that a handler reads every operand alike. A value of fewer bits lies in the low
// ones and readers cut it to their type; what is above is the sign or zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sinew::ptx {

struct Thread;
struct Instruction;
using Handler = void (*)(Thread& thread, const Instruction& instruction);

struct Instruction {
  Handler run = nullptr;
  int guard = -1;  // the predicate's slot, or -1
  bool guard_negated = false;
  int result = -1;
  int a = -1;
  int b = -1;
  int c = -1;
  int mask = -1;
  int parts = 0;  // first of the operands in braces, in Function::parts
  int part_count = 0;
  int target = -1;          // of a branch: number of an instruction
  std::int64_t offset = 0;  // of an address, or a count
  int line = 0;             // in the PTX file
};

struct Variable {
  std::string name;
  std::size_t size_bytes = 0;
  std::size_t alignment = 1;
  std::size_t offset = 0;
};

enum class Special : std::uint8_t {
  kThreadX,
  kThreadY,
  kThreadZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kThreadsX,
  kThreadsY,
  kThreadsZ,
  kBlocksX,
  kBlocksY,
  kBlocksZ,
};

// Parameters and local memory are addresses of the host; shared memory is the offset in the block's
// arena.
enum class SymbolKind : std::uint8_t { kParameter, kShared, kDynamicShared, kLocal };
struct SymbolSlot {
  int slot;
  SymbolKind kind;
  std::size_t index;  // of the shared variable
  std::size_t offset;
};

struct Function {
  std::string name;
  std::string file;
  std::vector<Variable> parameters;
  std::size_t parameter_bytes = 0;
  std::size_t threads_max = 1024;
  std::vector<Variable> shared;
  std::size_t local_bytes = 0;
  // What the slots hold when a thread starts: all ones (a NaN) where nothing has been written.
  std::vector<std::uint64_t> initial;
  std::vector<std::pair<int, Special>> specials;
  std::vector<SymbolSlot> symbols;
  std::vector<Instruction> code;
  std::vector<int> parts;
};

}  // namespace sinew::ptx
