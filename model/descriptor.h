// Descriptor: an open file that is closed with its owner; negative where opening failed, with errno
// as open left it.
#pragma once

#include <unistd.h>

namespace sinew::model {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int value() const { return value_; }

 private:
  int value_;
};

}  // namespace sinew::model
