// Arithmetic, bits and moves between registers.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <type_traits>

#include "kernels/device/gpu/number.h"
#include "kernels/device/twin/line.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/thread.h"

namespace sinew::ptx {

namespace {

template <typename T>
concept Integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Integers wrap: computed in 64 unsigned bits and cut.
template <typename T>
std::uint64_t wide(T value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (Integer<T>) return static_cast<T>(wide(a) + wide(b));
    return static_cast<T>(a + b);
  }
};
struct Subtract {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (Integer<T>) return static_cast<T>(wide(a) - wide(b));
    return static_cast<T>(a - b);
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (Integer<T>) return static_cast<T>(wide(a) * wide(b));
    return static_cast<T>(a * b);
  }
};
// The manual leaves division by zero open; all ones is what devices give.
struct Divide {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (Integer<T>) {
      if (b == 0) return static_cast<T>(-1);
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - wide(a));
    }
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <Integer T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
// The other operand wins over a NaN.
struct Minimum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
    return std::min(a, b);
  }
};
struct Maximum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
    return std::max(a, b);
  }
};
// NaN wins; -0 lies below +0.
struct MinimumNan {
  float operator()(float a, float b) const { return gpu::minimum(a, b); }
};
struct MaximumNan {
  float operator()(float a, float b) const { return gpu::maximum(a, b); }
};
struct And {
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
struct Or {
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
struct ExclusiveOr {
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};
// The sign of a on the value of b.
struct CopySign {
  template <typename T>
  requires std::is_floating_point_v<T> T operator()(T a, T b) const { return std::copysign(b, a); }
};
// The upper 64 of 128 bits, from products of halves.
void multiply_high(Thread& thread, const Instruction& i) {
  const auto a = in<std::uint64_t>(thread, i.a);
  const auto b = in<std::uint64_t>(thread, i.b);
  constexpr std::uint64_t kLow = 0xffffffffU;
  const std::uint64_t low = (a & kLow) * (b & kLow);
  const std::uint64_t middle = (a >> 32) * (b & kLow) + (low >> 32);
  const std::uint64_t other = (a & kLow) * (b >> 32) + (middle & kLow);
  out<std::uint64_t>(thread, i.result, (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32));
}
void multiply_high_s32(Thread& thread, const Instruction& i) {
  const std::int64_t product =
      std::int64_t{in<std::int32_t>(thread, i.a)} * std::int64_t{in<std::int32_t>(thread, i.b)};
  out<std::int32_t>(thread, i.result, static_cast<std::int32_t>(product >> 32));
}

struct Negate {
  template <typename T>
  requires std::is_signed_v<T> T operator()(T a) const {
    if constexpr (Integer<T>) return static_cast<T>(0 - wide(a));
    return static_cast<T>(-a);
  }
};
struct Absolute {
  template <typename T>
  requires std::is_floating_point_v<T> T operator()(T a) const { return std::fabs(a); }
};
struct Not {
  template <typename T>
  requires std::is_integral_v<T> T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};
struct SquareRoot {
  float operator()(float a) const { return std::sqrt(a); }
  double operator()(double a) const { return std::sqrt(a); }
};
struct Reciprocal {
  float operator()(float a) const { return 1.0F / a; }
};

struct ExponentialFlushed {
  float operator()(float a) const { return twin::exp2_approx(a); }
};
struct ReciprocalFlushed {
  float operator()(float a) const { return twin::flushed(1.0F / twin::flushed(a)); }
};

struct ReverseBits {
  std::uint32_t operator()(std::uint32_t a) const {
    std::uint32_t result = 0;
    for (int i = 0; i < 32; ++i) result |= (a >> i & 1U) << (31 - i);
    return result;
  }
};
// By how much the highest set bit would have to be shifted to the top.
struct ShiftOfHighest {
  std::uint32_t operator()(std::uint32_t a) const {
    return a == 0 ? ~0U : static_cast<std::uint32_t>(std::countl_zero(a));
  }
};

template <typename T, typename Op>
void unary(Thread& thread, const Instruction& i) {
  out<T>(thread, i.result, Op{}(in<T>(thread, i.a)));
}
template <typename T, typename Op>
void binary(Thread& thread, const Instruction& i) {
  out<T>(thread, i.result, Op{}(in<T>(thread, i.a), in<T>(thread, i.b)));
}

template <typename Op>
Handler unary_of(Type type) {
  return by_type(type, []<typename T>() -> Handler {
    // An operation of one type takes no other by conversion.
    if constexpr (requires { requires std::is_same_v<decltype(Op{}(T{})), T>; })
      return &unary<T, Op>;
    return nullptr;
  });
}
template <typename Op>
Handler binary_of(Type type) {
  return by_type(type, []<typename T>() -> Handler {
    if constexpr (!std::is_same_v<T, bool> || std::is_same_v<Op, And> || std::is_same_v<Op, Or> ||
                  std::is_same_v<Op, ExclusiveOr>) {
      if constexpr (requires { requires std::is_same_v<decltype(Op{}(T{}, T{})), T>; })
        return &binary<T, Op>;
    }
    return nullptr;
  });
}

template <typename T>
void shift_left(Thread& thread, const Instruction& i) {
  const auto by = in<std::uint32_t>(thread, i.b);
  out<T>(thread, i.result,
         by >= sizeof(T) * 8 ? T{0} : static_cast<T>(wide(in<T>(thread, i.a)) << by));
}
template <typename T>
void shift_right(Thread& thread, const Instruction& i) {
  const std::uint32_t most = sizeof(T) * 8 - 1;
  const auto by = in<std::uint32_t>(thread, i.b);
  const T value = in<T>(thread, i.a);
  const T shifted = static_cast<T>(value >> std::min(by, most));
  out<T>(thread, i.result, by > most && !std::is_signed_v<T> ? T{0} : shifted);
}
template <typename T, typename Wide>
void multiply_wide(Thread& thread, const Instruction& i) {
  out<Wide>(thread, i.result,
            static_cast<Wide>(static_cast<Wide>(in<T>(thread, i.a)) *
                              static_cast<Wide>(in<T>(thread, i.b))));
}
template <typename T>
void multiply_add(Thread& thread, const Instruction& i) {
  out<T>(thread, i.result, std::fma(in<T>(thread, i.a), in<T>(thread, i.b), in<T>(thread, i.c)));
}
template <typename T>
void multiply_add_low(Thread& thread, const Instruction& i) {
  using Unsigned = std::make_unsigned_t<T>;
  const auto word = [&](int slot) { return static_cast<Unsigned>(in<T>(thread, slot)); };
  out<T>(thread, i.result, static_cast<T>(word(i.a) * word(i.b) + word(i.c)));
}
void multiply_add_down(Thread& thread, const Instruction& i) {
  std::fesetround(FE_DOWNWARD);
  const volatile float a = in<float>(thread, i.a);
  const volatile float result = std::fma(a, in<float>(thread, i.b), in<float>(thread, i.c));
  std::fesetround(FE_TONEAREST);
  out<float>(thread, i.result, result);
}

// Bytes of {b, a} by the four selectors of c; a selector's high bit spreads the byte's sign.
void permute(Thread& thread, const Instruction& i) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(in<std::uint32_t>(thread, i.b)) << 32 |
                              in<std::uint32_t>(thread, i.a);
  const auto selectors = in<std::uint32_t>(thread, i.c);
  std::uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const std::uint32_t selector = selectors >> (4 * k) & 15U;
    auto byte = static_cast<std::uint32_t>(bytes >> (8 * (selector & 7U)) & 0xffU);
    if ((selector & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xffU : 0U;
    result |= byte << (8 * k);
  }
  out<std::uint32_t>(thread, i.result, result);
}

// a's low bits into b: `mask` bits at position c.
template <typename T>
void insert_bits(Thread& thread, const Instruction& i) {
  const auto at = in<std::uint32_t>(thread, i.c) & 0xffU;
  const auto count = in<std::uint32_t>(thread, i.mask) & 0xffU;
  const std::uint64_t ones = count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  const std::uint64_t mask = at >= 64 ? 0 : ones << at;
  const std::uint64_t value = at >= 64 ? 0 : in<std::uint64_t>(thread, i.a) << at;
  out<T>(thread, i.result,
         static_cast<T>((in<std::uint64_t>(thread, i.b) & ~mask) | (value & mask)));
}

template <typename T>
void move(Thread& thread, const Instruction& i) {
  out<T>(thread, i.result, in<T>(thread, i.a));
}
// The parts, lowest first, make up the value.
template <int kBits>
void pack(Thread& thread, const Instruction& i) {
  std::uint64_t value = 0;
  const int bits = kBits / i.part_count;
  for (int k = 0; k < i.part_count; ++k) {
    const auto part =
        in<std::uint64_t>(thread, thread.function->parts[static_cast<std::size_t>(i.parts + k)]);
    value |= (part & ((std::uint64_t{1} << bits) - 1)) << (k * bits);
  }
  out<std::uint64_t>(thread, i.result, value);
}
template <int kBits>
void unpack(Thread& thread, const Instruction& i) {
  const auto value = in<std::uint64_t>(thread, i.a);
  const int bits = kBits / i.part_count;
  for (int k = 0; k < i.part_count; ++k) {
    out<std::uint64_t>(thread, thread.function->parts[static_cast<std::size_t>(i.parts + k)],
                       value >> (k * bits) & ((std::uint64_t{1} << bits) - 1));
  }
}

void read_clock(Thread& thread, const Instruction& i) {
  out<std::uint64_t>(thread, i.result, twin::nanoseconds());
}

void decode_move(Reader& reader, Instruction& instruction) {
  const Type type = reader.take_type();
  if (reader.take("globaltimer")) {
    instruction.result = reader.slot(0);
    instruction.run = read_clock;
    return;
  }
  const bool packs = reader.operand(1).kind == Operand::Kind::kVector;
  const bool unpacks = reader.operand(0).kind == Operand::Kind::kVector;
  if (packs || unpacks) {
    reader.parts(packs ? 1 : 0, instruction);
    if (packs) instruction.result = reader.slot(0);
    if (unpacks) instruction.a = reader.slot(1);
    if (type == Type::kB32) instruction.run = packs ? pack<32> : unpack<32>;
    if (type == Type::kB64) instruction.run = packs ? pack<64> : unpack<64>;
    return;
  }
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  instruction.run = by_type(type, []<typename T>() -> Handler { return &move<T>; });
}

void decode_multiply(Reader& reader, Instruction& instruction) {
  if (reader.take("wide")) {
    switch (reader.take_type()) {
      case Type::kU16:
        instruction.run = multiply_wide<std::uint16_t, std::uint32_t>;
        break;
      case Type::kU32:
        instruction.run = multiply_wide<std::uint32_t, std::uint64_t>;
        break;
      case Type::kS32:
        instruction.run = multiply_wide<std::int32_t, std::int64_t>;
        break;
      default:
        break;
    }
  } else if (reader.take("hi")) {
    const Type type = reader.take_type();
    if (type == Type::kU64) instruction.run = multiply_high;
    if (type == Type::kS32) instruction.run = multiply_high_s32;
  } else if (reader.take("lo") || reader.take("rn")) {
    instruction.run = binary_of<Multiply>(reader.take_type());
  }
}

void decode_fused(Reader& reader, Instruction& instruction) {
  instruction.c = reader.slot(3);
  if (reader.take("lo")) {
    instruction.run = by_type(reader.take_type(), []<typename T>() -> Handler {
      if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) return &multiply_add_low<T>;
      return nullptr;
    });
  } else if (reader.take("rm")) {
    if (reader.take_type() == Type::kF32) instruction.run = multiply_add_down;
  } else if (reader.take("rn")) {
    instruction.run = by_type(reader.take_type(), []<typename T>() -> Handler {
      if constexpr (std::is_floating_point_v<T>) return &multiply_add<T>;
      return nullptr;
    });
  }
}

// The exact and the approximate forms of one function of f32.
template <typename Exact, typename Approximate>
Handler function_of(Reader& reader) {
  if (reader.take("rn")) return unary_of<Exact>(reader.take_type());
  if (reader.take("approx") && reader.take("ftz")) return unary_of<Approximate>(reader.take_type());
  return nullptr;
}

bool decode_unary(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family == "neg") {
    instruction.run = unary_of<Negate>(reader.take_type());
  } else if (family == "abs") {
    instruction.run = unary_of<Absolute>(reader.take_type());
  } else if (family == "not") {
    instruction.run = unary_of<Not>(reader.take_type());
  } else if (family == "sqrt") {
    if (reader.take("rn")) instruction.run = unary_of<SquareRoot>(reader.take_type());
  } else if (family == "rcp") {
    instruction.run = function_of<Reciprocal, ReciprocalFlushed>(reader);
  } else if (family == "ex2") {
    if (reader.take("approx") && reader.take("ftz"))
      instruction.run = unary_of<ExponentialFlushed>(reader.take_type());
  } else if (family == "brev") {
    instruction.run = unary_of<ReverseBits>(reader.take_type());
  } else if (family == "bfind") {
    if (reader.take("shiftamt")) instruction.run = unary_of<ShiftOfHighest>(reader.take_type());
  } else {
    return false;
  }
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  return true;
}

bool decode_binary(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family == "add") {
    reader.take("rn");
    instruction.run = binary_of<Add>(reader.take_type());
  } else if (family == "sub") {
    reader.take("rn");
    instruction.run = binary_of<Subtract>(reader.take_type());
  } else if (family == "mul") {
    decode_multiply(reader, instruction);
  } else if (family == "fma" || family == "mad") {
    decode_fused(reader, instruction);
  } else if (family == "div") {
    reader.take("rn");
    instruction.run = binary_of<Divide>(reader.take_type());
  } else if (family == "rem") {
    instruction.run = binary_of<Remainder>(reader.take_type());
  } else if (family == "min") {
    const bool nan = reader.take("NaN");
    const Type type = reader.take_type();
    instruction.run = nan ? binary_of<MinimumNan>(type) : binary_of<Minimum>(type);
  } else if (family == "max") {
    const bool nan = reader.take("NaN");
    const Type type = reader.take_type();
    instruction.run = nan ? binary_of<MaximumNan>(type) : binary_of<Maximum>(type);
  } else if (family == "and") {
    instruction.run = binary_of<And>(reader.take_type());
  } else if (family == "or") {
    instruction.run = binary_of<Or>(reader.take_type());
  } else if (family == "xor") {
    instruction.run = binary_of<ExclusiveOr>(reader.take_type());
  } else if (family == "copysign") {
    instruction.run = binary_of<CopySign>(reader.take_type());
  } else {
    return false;
  }
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  instruction.b = reader.slot(2);
  return true;
}

bool decode_shift(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family != "shl" && family != "shr") return false;
  instruction.run = by_type(reader.take_type(), [&]<typename T>() -> Handler {
    if constexpr (Integer<T>) return family == "shl" ? &shift_left<T> : &shift_right<T>;
    return nullptr;
  });
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  instruction.b = reader.slot(2);
  return true;
}

}  // namespace

bool decode_arithmetic(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family == "mov") {
    decode_move(reader, instruction);
    return true;
  }
  if (family == "prmt" || family == "bfi") {
    const Type type = reader.take_type();
    if (family == "prmt" && type == Type::kB32) instruction.run = permute;
    if (family == "bfi" && type == Type::kB32) instruction.run = insert_bits<std::uint32_t>;
    if (family == "bfi" && type == Type::kB64) instruction.run = insert_bits<std::uint64_t>;
    instruction.result = reader.slot(0);
    instruction.a = reader.slot(1);
    instruction.b = reader.slot(2);
    instruction.c = reader.slot(3);
    if (family == "bfi") instruction.mask = reader.slot(4);
    return true;
  }
  return decode_unary(reader, instruction) || decode_binary(reader, instruction) ||
         decode_shift(reader, instruction);
}

}  // namespace sinew::ptx
