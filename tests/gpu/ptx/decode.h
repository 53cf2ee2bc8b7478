// From statements to instructions. Each family of opcodes has one function, which takes the
// modifiers it knows; an opcode that no family takes whole is refused by name, with file and line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/function.h"
#include "tests/gpu/ptx/statement.h"

namespace sinew::ptx {

enum class Type : std::uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
};

// An opcode's words and its operands, as a family of instructions reads them.
class Reader {
 public:
  Reader(const Statement& statement, Function& function);

  [[nodiscard]] std::string_view family() const { return family_; }
  // Whether the modifier is there; it counts as understood.
  bool take(std::string_view modifier);
  // The next word, which must be a type; kNone when it is not.
  Type take_type();
  [[nodiscard]] bool understood() const { return words_.empty(); }

  [[nodiscard]] std::size_t count() const { return statement_.operands.size(); }
  [[nodiscard]] const Operand& operand(std::size_t i) const;
  [[nodiscard]] int slot(std::size_t i) const;  // refuses what is no single value
  // Whether the operand is this immediate value.
  [[nodiscard]] bool is(std::size_t i, std::uint64_t value) const;
  // Slot and offset into instruction.a and .offset.
  void address(std::size_t i, Instruction& instruction) const;
  // The slots in braces, or the single one, behind those that the instruction already has.
  void parts(std::size_t i, Instruction& instruction);
  // The second of a pair, as the only part.
  void second(std::size_t i, Instruction& instruction) const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const Statement& statement_;
  Function& function_;
  std::string family_;
  std::vector<std::string> words_;
};

// Each returns whether the family is its own; what it does not understand is left in the reader.
[[nodiscard]] bool decode_arithmetic(Reader& reader, Instruction& instruction);
[[nodiscard]] bool decode_comparison(Reader& reader, Instruction& instruction);
[[nodiscard]] bool decode_conversion(Reader& reader, Instruction& instruction);
[[nodiscard]] bool decode_memory(Reader& reader, Instruction& instruction);
[[nodiscard]] bool decode_meeting(Reader& reader, Instruction& instruction);
[[nodiscard]] bool decode_tensor(Reader& reader, Instruction& instruction);

// One change of a kernel's text, for tests of the tests.
struct Change {
  std::string opcode;  // of the instructions with exactly this one
  // Another opcode with the same operands; empty: the instruction is left out.
  std::string replacement;
  int only = -1;  // of a kernel's, counted from 0; -1: all
};

// Throws Error.
[[nodiscard]] Function decode(const Source& source, const std::string& entry, const Change& change);

// The handler that select<T>() gives for the type; null where it gives none.
template <typename Select>
Handler by_type(Type type, Select select) {
  switch (type) {
    case Type::kPred:
      return select.template operator()<bool>();
    case Type::kB8:
    case Type::kU8:
      return select.template operator()<std::uint8_t>();
    case Type::kB16:
    case Type::kU16:
      return select.template operator()<std::uint16_t>();
    case Type::kB32:
    case Type::kU32:
      return select.template operator()<std::uint32_t>();
    case Type::kB64:
    case Type::kU64:
      return select.template operator()<std::uint64_t>();
    case Type::kS8:
      return select.template operator()<std::int8_t>();
    case Type::kS16:
      return select.template operator()<std::int16_t>();
    case Type::kS32:
      return select.template operator()<std::int32_t>();
    case Type::kS64:
      return select.template operator()<std::int64_t>();
    case Type::kF32:
      return select.template operator()<float>();
    case Type::kF64:
      return select.template operator()<double>();
    case Type::kNone:
    case Type::kF16:
    case Type::kBf16:
    case Type::kBf16x2:
      return nullptr;
  }
  return nullptr;
}

}  // namespace sinew::ptx
