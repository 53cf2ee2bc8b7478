#include "kernels/device/twin/config.h"

namespace sinew::twin {

namespace {

constinit thread_local const Config* innermost = nullptr;

const char* name_of(Order order) {
  switch (order) {
    case Order::kFifo:
      return "fifo";
    case Order::kLifo:
      return "lifo";
    case Order::kRandom:
      return "random";
    case Order::kPriority:
      return "priority";
  }
  return "";
}

const char* name_of(Async async) {
  switch (async) {
    case Async::kEager:
      return "eager";
    case Async::kLazy:
      return "lazy";
    case Async::kRandom:
      return "random";
  }
  return "";
}

}  // namespace

std::string describe(const Config& config) {
  std::string text = "order=" + std::string(name_of(config.order)) +
                     " async=" + name_of(config.async) + " seed=" + std::to_string(config.seed) +
                     " resident=" + std::to_string(config.resident_blocks);
  if (config.streams == Streams::kPriority) text += " streams=priority";
  if (config.removed != nullptr) text += " removed=" + std::string(config.removed);
  return text;
}

Scope::Scope(const Config& config) : outer_(innermost), config_(config) {
  if (config_.interpreter == nullptr) config_.interpreter = current().interpreter;
  innermost = &config_;
}

Scope::~Scope() { innermost = outer_; }

const Config& Scope::current() {
  static const Config kDefault;
  return innermost != nullptr ? *innermost : kDefault;
}

}  // namespace sinew::twin
