// Collects what threads found wrong and reports it on the test's own thread.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

namespace sinew::comm::testing {

class Failures {
 public:
  void add(const std::string& text) {
    if (text.empty()) return;
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
  }
  ~Failures() {
    for (std::size_t i = 0; i < texts_.size() && i < 5; ++i) ADD_FAILURE() << texts_[i];
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace sinew::comm::testing
