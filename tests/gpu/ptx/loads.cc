// Loads, stores, and what turns addresses of one state space into another's.
#include <cstring>

#include "kernels/device/twin/core.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/spaces.h"

namespace sinew::ptx {

namespace {

using twin::Site;

enum class Space : std::uint8_t {
  kGlobal,
  kShared,
  kPrivate
};  // private: parameters and local memory

int part(const Thread& thread, const Instruction& i, int k) {
  return thread.function->parts[static_cast<std::size_t>(i.parts + k)];
}

template <Space kSpace>
char* place_of(const Thread& thread, const Instruction& i, std::size_t size_bytes) {
  if constexpr (kSpace == Space::kShared) return shared_operand(thread, i, i.a, size_bytes);
  return pointer_operand(thread, i, i.a, size_bytes);
}

enum class Order : std::uint8_t { kPlain, kRelaxed };

template <Space kSpace, typename T, Order kOrder = Order::kPlain>
void load(Thread& thread, const Instruction& i) {
  const char* place =
      place_of<kSpace>(thread, i, sizeof(T) * static_cast<std::size_t>(i.part_count));
  for (int k = 0; k < i.part_count; ++k) {
    T value;
    const char* element = place + sizeof(T) * static_cast<std::size_t>(k);
    if constexpr (kSpace == Space::kGlobal && kOrder == Order::kPlain) {
      thread.memory->load_plain(thread.view, element, &value, sizeof(T));
    } else if constexpr (kSpace == Space::kGlobal) {
      thread.memory->load(thread.view, element, &value, sizeof(T));
    } else {
      std::memcpy(&value, element, sizeof(T));
    }
    out<T>(thread, part(thread, i, k), value);
  }
}

// Elements of a vector are stores of their own, as the memory model has it.
template <Space kSpace, typename T>
void store(Thread& thread, const Instruction& i) {
  char* place = place_of<kSpace>(thread, i, sizeof(T) * static_cast<std::size_t>(i.part_count));
  for (int k = 0; k < i.part_count; ++k) {
    const T value = in<T>(thread, part(thread, i, k));
    char* element = place + sizeof(T) * static_cast<std::size_t>(k);
    if constexpr (kSpace == Space::kGlobal) {
      thread.memory->store(thread.view, element, &value, sizeof(T));
    } else {
      std::memcpy(element, &value, sizeof(T));
    }
  }
}

// Words by which threads of several blocks and ranks speak.
void load_word(Thread& thread, const Instruction& i) {
  twin::preemption_point(Site::current());
  thread.looked = true;
  load<Space::kGlobal, std::uint64_t, Order::kRelaxed>(thread, i);
}
void load_acquire(Thread& thread, const Instruction& i) {
  load_word(thread, i);
  thread.memory->acquire(thread.view);
}
void store_relaxed(Thread& thread, const Instruction& i) {
  twin::preemption_point(Site::current());
  store<Space::kGlobal, std::uint64_t>(thread, i);
}
void store_release(Thread& thread, const Instruction& i) {
  twin::preemption_point(Site::current());
  thread.memory->release(thread.view);
  store<Space::kGlobal, std::uint64_t>(thread, i);
}

// Lines of 128 bytes, 16 of each of eight neighbouring lanes, that are stored and loaded whole:
// gpu/line.h says why, and that it is an assumption.
struct LineAccess {
  Thread* thread;
  char* place;
  std::uint32_t word[4];
};
constexpr int kLineLanes = 8;
constexpr std::size_t kLineBytes = 128;

LineAccess& access(std::uint32_t mask, void* const* arguments, int k) {
  auto* first = static_cast<LineAccess*>(arguments[__builtin_ctz(mask)]);
  auto* own = static_cast<LineAccess*>(arguments[__builtin_ctz(mask) + k]);
  if (own->place != first->place + 16 * k ||
      reinterpret_cast<std::uintptr_t>(first->place) % kLineBytes != 0)
    twin::fail("the lanes of a line of 128 bytes must bring its parts in order, aligned to 128");
  return *own;
}
void compute_line_store(std::uint32_t mask, void* const* arguments) {
  char bytes[kLineBytes];
  for (int k = 0; k < kLineLanes; ++k)
    std::memcpy(bytes + 16 * k, access(mask, arguments, k).word, 16);
  const LineAccess& first = access(mask, arguments, 0);
  first.thread->memory->store(first.thread->view, first.place, bytes, kLineBytes);
}
void compute_line_load(std::uint32_t mask, void* const* arguments) {
  char bytes[kLineBytes];
  const LineAccess& first = access(mask, arguments, 0);
  first.thread->memory->load(first.thread->view, first.place, bytes, kLineBytes);
  for (int k = 0; k < kLineLanes; ++k)
    std::memcpy(access(mask, arguments, k).word, bytes + 16 * k, 16);
}
constinit const twin::WarpOp kLineStore = {"store of a line", compute_line_store, false};
constinit const twin::WarpOp kLineLoad = {"load of a line", compute_line_load, false};

std::uint32_t lanes_of_line() { return 0xffU << twin::lane_index() / kLineLanes * kLineLanes; }

void store_line(Thread& thread, const Instruction& i) {
  LineAccess argument{&thread, pointer_operand(thread, i, i.a, 16), {}};
  for (int k = 0; k < 4; ++k) argument.word[k] = in<std::uint32_t>(thread, part(thread, i, k));
  twin::warp_rendezvous(lanes_of_line(), kLineStore, &argument, Site::current());
}
void load_line(Thread& thread, const Instruction& i) {
  LineAccess argument{&thread, pointer_operand(thread, i, i.a, 16), {}};
  twin::warp_rendezvous(lanes_of_line(), kLineLoad, &argument, Site::current());
  for (int k = 0; k < 4; ++k) out<std::uint32_t>(thread, part(thread, i, k), argument.word[k]);
  thread.looked = true;
}

template <Space kSpace>
Handler plain(Type type, bool loads) {
  return by_type(type, [loads]<typename T>() -> Handler {
    if constexpr (std::is_same_v<T, bool>) return nullptr;
    return loads ? &load<kSpace, T> : &store<kSpace, T>;
  });
}

void decode_access(Reader& reader, Instruction& instruction, bool loads) {
  const bool relaxed = reader.take("relaxed");
  const bool ordered = reader.take(loads ? "acquire" : "release");
  const bool system = reader.take("sys");
  const bool global = reader.take("global");
  if (loads) reader.take("L1::no_allocate");
  const bool shared = reader.take("shared");
  const bool param = loads && reader.take("param");
  const bool local = reader.take("local");
  const bool two = reader.take("v2");
  const bool four = reader.take("v4");
  const Type type = reader.take_type();
  reader.parts(loads ? 0 : 1, instruction);
  reader.address(loads ? 1 : 0, instruction);
  if (instruction.part_count != (two ? 2 : four ? 4 : 1))
    reader.refuse("the number of elements is not known");
  if (relaxed || ordered) {
    if (!system || !global || two) return;
    if (relaxed && four && type == Type::kU32) instruction.run = loads ? load_line : store_line;
    if (!four && type == Type::kU64)
      instruction.run = loads     ? (ordered ? load_acquire : load_word)
                        : ordered ? store_release
                                  : store_relaxed;
    return;
  }
  if (system) return;
  if (global) instruction.run = plain<Space::kGlobal>(type, loads);
  if (shared) instruction.run = plain<Space::kShared>(type, loads);
  if (param || local) instruction.run = plain<Space::kPrivate>(type, loads);
}

// Global, local and parameter addresses are host pointers already.
void same_address(Thread& thread, const Instruction& i) {
  out<std::uint64_t>(thread, i.result, in<std::uint64_t>(thread, i.a));
}

}  // namespace

bool decode_memory(Reader& reader, Instruction& instruction) {
  if (reader.family() == "ld" || reader.family() == "st") {
    decode_access(reader, instruction, reader.family() == "ld");
    return true;
  }
  if (reader.family() != "cvta") return false;
  reader.take("to");
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  const bool same = reader.take("global") || reader.take("local") || reader.take("param");
  if (same && reader.take_type() == Type::kU64) instruction.run = same_address;
  return true;
}

}  // namespace sinew::ptx
