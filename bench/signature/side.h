// One of two builds of comm in one program: with the signatures of calls, and without
// (CMakeLists.txt makes the second, in a namespace of its own).
#pragma once

#include <cstdint>
#include <memory>

namespace sinew::bench {

class SignatureSide {
 public:
  virtual ~SignatureSide() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;
  // All-reduces of one double, one after the other.
  virtual void calls(int count) = 0;
  // The maximum over ranks, element by element.
  virtual void max_over_ranks(double* values, std::int64_t count) = 0;
  virtual void barrier() = 0;
};

}  // namespace sinew::bench

namespace sinew::comm {
[[nodiscard]] std::unique_ptr<bench::SignatureSide> signature_side();
}  // namespace sinew::comm

namespace sinew::comm_unsigned {
[[nodiscard]] std::unique_ptr<bench::SignatureSide> signature_side();
}  // namespace sinew::comm_unsigned
