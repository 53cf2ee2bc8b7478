#include "tests/gpu/ptx/decode.h"

#include <algorithm>
#include <utility>

#include "kernels/device/twin/core.h"
#include "sched/base/error.h"
#include "tests/gpu/ptx/thread.h"

namespace sinew::ptx {

namespace {

constexpr std::pair<std::string_view, Type> kTypes[] = {
    {"pred", Type::kPred}, {"b8", Type::kB8},         {"b16", Type::kB16}, {"b32", Type::kB32},
    {"b64", Type::kB64},   {"u8", Type::kU8},         {"u16", Type::kU16}, {"u32", Type::kU32},
    {"u64", Type::kU64},   {"s8", Type::kS8},         {"s16", Type::kS16}, {"s32", Type::kS32},
    {"s64", Type::kS64},   {"f16", Type::kF16},       {"f32", Type::kF32}, {"f64", Type::kF64},
    {"bf16", Type::kBf16}, {"bf16x2", Type::kBf16x2},
};

// "ld.global.L1::no_allocate.u32" by its dots.
std::vector<std::string> words_of(const std::string& opcode) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while (begin <= opcode.size()) {
    const std::size_t end = std::min(opcode.find('.', begin), opcode.size());
    words.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void branch(Thread& thread, const Instruction& i) {
  const Instruction* target = thread.function->code.data() + i.target;
  const bool back = target < thread.next;
  thread.next = target;
  // A loop that looks at what others write is a wait.
  if (!back || !thread.looked) return;
  thread.looked = false;
  thread.memory->turn(thread.view);
  twin::spin_turn(twin::Site::current());
}

void leave(Thread& thread, const Instruction&) { thread.next = nullptr; }

void trap(Thread&, const Instruction&) { twin::fail("trap"); }

bool decode_flow(Reader& reader, Instruction& instruction, const Statement& statement,
                 const Body& body) {
  if (reader.family() == "bra") {
    reader.take("uni");
    const auto label = body.labels.find(statement.target);
    if (label == body.labels.end()) reader.refuse("there is no label " + statement.target);
    instruction.target = label->second;
    instruction.run = branch;
    return true;
  }
  if (reader.family() == "ret") instruction.run = leave;
  if (reader.family() == "trap") instruction.run = trap;
  return instruction.run != nullptr;
}

void decode_one(Reader& reader, Instruction& instruction, const Statement& statement,
                const Body& body) {
  const bool known = decode_flow(reader, instruction, statement, body) ||
                     decode_arithmetic(reader, instruction) ||
                     decode_comparison(reader, instruction) ||
                     decode_conversion(reader, instruction) || decode_memory(reader, instruction) ||
                     decode_meeting(reader, instruction) || decode_tensor(reader, instruction);
  if (!known || instruction.run == nullptr || !reader.understood())
    reader.refuse("instruction is not known");
}

void nothing(Thread&, const Instruction&) {}

}  // namespace

Reader::Reader(const Statement& statement, Function& function)
    : statement_(statement), function_(function), words_(words_of(statement.opcode)) {
  family_ = words_.front();
  words_.erase(words_.begin());
}

bool Reader::take(std::string_view modifier) {
  const auto found = std::find(words_.begin(), words_.end(), modifier);
  if (found == words_.end()) return false;
  words_.erase(found);
  return true;
}

Type Reader::take_type() {
  if (words_.empty()) return Type::kNone;
  for (const auto& [name, type] : kTypes) {
    if (name != words_.front()) continue;
    words_.erase(words_.begin());
    return type;
  }
  return Type::kNone;
}

const Operand& Reader::operand(std::size_t i) const {
  if (i >= statement_.operands.size()) refuse("there are too few operands");
  return statement_.operands[i];
}

int Reader::slot(std::size_t i) const {
  const Operand& operand = this->operand(i);
  if (operand.kind != Operand::Kind::kSlot)
    refuse("operand " + std::to_string(i) + " is not known");
  return operand.slot;
}

bool Reader::is(std::size_t i, std::uint64_t value) const {
  return function_.initial[static_cast<std::size_t>(slot(i))] == value;
}

void Reader::address(std::size_t i, Instruction& instruction) const {
  const Operand& operand = this->operand(i);
  if (operand.kind != Operand::Kind::kAddress)
    refuse("operand " + std::to_string(i) + " is no address");
  instruction.a = operand.slot;
  instruction.offset = operand.offset;
}

void Reader::parts(std::size_t i, Instruction& instruction) {
  const Operand& operand = this->operand(i);
  if (instruction.part_count == 0) instruction.parts = static_cast<int>(function_.parts.size());
  const auto add = [&](const Operand& part) {
    if (part.kind != Operand::Kind::kSlot) refuse("operand " + std::to_string(i) + " is not known");
    function_.parts.push_back(part.slot);
    ++instruction.part_count;
  };
  if (operand.kind == Operand::Kind::kSlot) return add(operand);
  for (const Operand& part : operand.parts) add(part);
}

void Reader::second(std::size_t i, Instruction& instruction) const {
  instruction.parts = static_cast<int>(function_.parts.size());
  instruction.part_count = 1;
  function_.parts.push_back(operand(i).second);
}

void Reader::refuse(const std::string& why) const {
  throw Error("PTX " + function_.file + ":" + std::to_string(statement_.line) + ": '" +
              statement_.opcode + "': " + why + " to the interpreter of tests/gpu/ptx");
}

Function decode(const Source& source, const std::string& entry, const Change& change) {
  Function function;
  Body body = source.parse(entry, function);
  int seen = 0;  // of those that the change names
  for (Statement& statement : body.statements) {
    Instruction instruction;
    instruction.line = statement.line;
    instruction.guard = statement.guard;
    instruction.guard_negated = statement.guard_negated;
    const bool named = statement.opcode == change.opcode;
    const bool changed = named && (change.only < 0 || change.only == seen);
    if (named) ++seen;
    if (changed) statement.opcode = change.replacement;
    if (changed && change.replacement.empty()) {
      instruction.run = nothing;
    } else {
      Reader reader(statement, function);
      decode_one(reader, instruction, statement, body);
    }
    function.code.push_back(instruction);
  }
  // Behind the last statement there is a return.
  Instruction last;
  last.run = leave;
  function.code.push_back(last);
  return function;
}

}  // namespace sinew::ptx
