// Comparisons, selections and conversions.
#include <cmath>
#include <functional>
#include <type_traits>

#include "sched/base/dtype.h"
#include "tests/gpu/ptx/decode.h"
#include "tests/gpu/ptx/thread.h"

namespace sinew::ptx {

namespace {

template <typename T, typename Op>
void compare(Thread& thread, const Instruction& i) {
  out<bool>(thread, i.result, Op{}(in<T>(thread, i.a), in<T>(thread, i.b)));
}

struct IsUnordered {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != a || b != b;
  }
};
struct Unequal {  // both are numbers
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct UnequalOrUnordered {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != b;
  }
};
template <typename Op>
Handler compare_of(Type type) {
  return by_type(type, []<typename T>() -> Handler {
    if constexpr (!std::is_same_v<T, bool>) return &compare<T, Op>;
    return nullptr;
  });
}
template <typename Op>
Handler compare_floats(Type type) {
  return type == Type::kF32   ? &compare<float, Op>
         : type == Type::kF64 ? &compare<double, Op>
                              : nullptr;
}

Handler comparison(Reader& reader) {
  if (reader.take("eq")) return compare_of<std::equal_to<>>(reader.take_type());
  if (reader.take("lt")) return compare_of<std::less<>>(reader.take_type());
  if (reader.take("le")) return compare_of<std::less_equal<>>(reader.take_type());
  if (reader.take("gt")) return compare_of<std::greater<>>(reader.take_type());
  if (reader.take("ge")) return compare_of<std::greater_equal<>>(reader.take_type());
  if (reader.take("ne")) return compare_of<Unequal>(reader.take_type());
  if (reader.take("neu")) return compare_floats<UnequalOrUnordered>(reader.take_type());
  if (reader.take("nan")) return compare_floats<IsUnordered>(reader.take_type());
  return nullptr;
}

template <typename T>
void choose(Thread& thread, const Instruction& i) {
  out<T>(thread, i.result, in<T>(thread, in<bool>(thread, i.c) ? i.a : i.b));
}

template <typename To, typename From>
void convert(Thread& thread, const Instruction& i) {
  out<To>(thread, i.result, static_cast<To>(in<From>(thread, i.a)));
}

void saturate(Thread& thread, const Instruction& i) {
  const float x = in<float>(thread, i.a);
  out<float>(thread, i.result, x > 0.0F ? std::fmin(x, 1.0F) : 0.0F);
}

void to_bfloat(Thread& thread, const Instruction& i) {
  out<std::uint16_t>(thread, i.result, sinew::to_bf16(in<float>(thread, i.a)).bits);
}
// The first operand comes into the upper half.
void to_bfloat_pair(Thread& thread, const Instruction& i) {
  const std::uint32_t high = sinew::to_bf16(in<float>(thread, i.a)).bits;
  const std::uint32_t low = sinew::to_bf16(in<float>(thread, i.b)).bits;
  out<std::uint32_t>(thread, i.result, high << 16 | low);
}
void to_half(Thread& thread, const Instruction& i) {
  out<std::uint16_t>(thread, i.result, sinew::to_f16(in<float>(thread, i.a)).bits);
}
void from_half(Thread& thread, const Instruction& i) {
  out<float>(thread, i.result, sinew::to_float(f16{in<std::uint16_t>(thread, i.a)}));
}

template <typename To, typename From>
Handler plain_conversion(bool rounds_to_nearest) {
  // Values that need no rounding have no rounding in their opcode, and the others must.
  constexpr bool kRounds = std::is_floating_point_v<To> &&
                           (!std::is_floating_point_v<From> || sizeof(To) < sizeof(From));
  if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>) return nullptr;
  return rounds_to_nearest == kRounds ? &convert<To, From> : nullptr;
}

Handler numbers(Type to, Type from, bool rounds_to_nearest) {
  return by_type(to, [&]<typename To>() -> Handler {
    if constexpr (std::is_same_v<To, bool>) return nullptr;
    return by_type(from, [&]<typename From>() -> Handler {
      if constexpr (std::is_same_v<From, bool> || std::is_same_v<To, bool>) return nullptr;
      return plain_conversion<To, From>(rounds_to_nearest);
    });
  });
}

Handler conversion(Reader& reader) {
  const bool saturates = reader.take("sat");
  const bool nearest = reader.take("rn");
  const Type to = reader.take_type();
  const Type from = reader.take_type();
  if (saturates) return to == Type::kF32 && from == Type::kF32 ? saturate : nullptr;
  if (nearest && from == Type::kF32) {
    if (to == Type::kBf16) return to_bfloat;
    if (to == Type::kBf16x2) return to_bfloat_pair;
    if (to == Type::kF16) return to_half;
  }
  if (!nearest && from == Type::kF16 && to == Type::kF32) return from_half;
  return numbers(to, from, nearest);
}

}  // namespace

bool decode_comparison(Reader& reader, Instruction& instruction) {
  const std::string_view family = reader.family();
  if (family != "setp" && family != "selp") return false;
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  instruction.b = reader.slot(2);
  if (family == "setp") {
    if (reader.count() != 3) reader.refuse("more than one result is not known");
    instruction.run = comparison(reader);
  } else {
    instruction.c = reader.slot(3);
    instruction.run =
        by_type(reader.take_type(), []<typename T>() -> Handler { return &choose<T>; });
  }
  return true;
}

bool decode_conversion(Reader& reader, Instruction& instruction) {
  if (reader.family() != "cvt") return false;
  instruction.result = reader.slot(0);
  instruction.a = reader.slot(1);
  if (reader.count() == 3) instruction.b = reader.slot(2);
  instruction.run = conversion(reader);
  return true;
}

}  // namespace sinew::ptx
