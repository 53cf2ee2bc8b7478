// CHECK: programmer errors, always on. A failed check prints the condition, both values and the
// place, then aborts. Environment errors (bad input, a dead peer) are Error in error.h, never
// CHECK.
#pragma once

#include <sstream>
#include <string>

namespace sinew {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);

template <typename A, typename B>
std::string check_values(const A& left, const B& right) {
  std::ostringstream out;
  out << left << " against " << right;
  return out.str();
}

}  // namespace sinew

#define CHECK(condition)        \
  (static_cast<bool>(condition) \
       ? static_cast<void>(0)   \
       : ::sinew::check_failed(__FILE__, __LINE__, #condition, std::string()))
#define SINEW_CHECK_OP(left, op, right)                                                  \
  ((left)op(right) ? static_cast<void>(0)                                                \
                   : ::sinew::check_failed(__FILE__, __LINE__, #left " " #op " " #right, \
                                           ::sinew::check_values((left), (right))))
#define CHECK_EQ(left, right) SINEW_CHECK_OP(left, ==, right)
#define CHECK_NE(left, right) SINEW_CHECK_OP(left, !=, right)
#define CHECK_LT(left, right) SINEW_CHECK_OP(left, <, right)
#define CHECK_LE(left, right) SINEW_CHECK_OP(left, <=, right)
#define CHECK_GT(left, right) SINEW_CHECK_OP(left, >, right)
#define CHECK_GE(left, right) SINEW_CHECK_OP(left, >=, right)
