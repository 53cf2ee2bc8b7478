// Errors a user can cause or meet. UsageError is bad input: one line naming the value, the rule and
// the legal values; the program exits 2. Error is a failure at run time (a dead peer, a full disk);
// it exits 1.
#pragma once

#include <stdexcept>
#include <string>

namespace sinew {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
  // The exit code a command line ends with when this error reaches it.
  [[nodiscard]] virtual int exit_code() const { return 1; }
};

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& what) : Error(what) {}
  [[nodiscard]] int exit_code() const override { return 2; }
};

}  // namespace sinew
