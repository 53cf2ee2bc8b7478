// How a kernel and its arguments become queued work of a twin stream.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/device/launch_shape.h"
#include "kernels/device/runtime.h"
#include "kernels/device/twin/config.h"
#include "kernels/device/twin/engine.h"

namespace sinew::twin {

struct KernelCall {
  Kernel kernel;  // kernel.argument points into `arguments`
  std::shared_ptr<const void> arguments;
  const void* function = nullptr;  // the kernel's address: its name is found from it
  std::vector<std::byte>
      parameters;  // the arguments as PTX lays them out, each at its natural alignment
};

// Runs a kernel's PTX in place of the host code compiled from the same source.
class Interpreter {
 public:
  virtual ~Interpreter() = default;
  // Major compute capability of what it runs, which decides between versions of a kernel.
  [[nodiscard]] virtual int compute_major() const = 0;
  [[nodiscard]] virtual std::string run(Engine& engine, const device::LaunchShape& shape,
                                        const Config& config, std::uint64_t serial,
                                        const KernelCall& call) = 0;
};

// In runtime.cc. Throws device::Error when the shape is refused.
void enqueue(device::Stream& stream, const device::LaunchShape& shape, KernelCall call);

template <typename... Parameters>
struct BoundKernel {
  void (*kernel)(Parameters...);
  std::tuple<std::decay_t<Parameters>...> values;

  static void run(const void* argument) {
    const auto& bound = *static_cast<const BoundKernel*>(argument);
    // Each thread has its own copy of the arguments, as on a device.
    std::apply([&](auto... value) { bound.kernel(value...); }, bound.values);
  }
};

template <typename T>
void append_parameter(std::vector<std::byte>& block, const T& value) {
  const std::size_t offset = (block.size() + alignof(T) - 1) / alignof(T) * alignof(T);
  block.resize(offset + sizeof(T));
  std::memcpy(block.data() + offset, &value, sizeof(T));
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), const device::LaunchShape& shape, device::Stream& stream,
            std::decay_t<Parameters>... values) {
  auto bound =
      std::make_shared<BoundKernel<Parameters...>>(BoundKernel<Parameters...>{kernel, {values...}});
  KernelCall call;
  call.kernel = {&BoundKernel<Parameters...>::run, bound.get()};
  // The only reference: one kept here would be given up after the stream's, now and then, and the
  // count of references would then order the kernel before all that this thread does next.
  call.arguments = std::move(bound);
  call.function = reinterpret_cast<const void*>(kernel);
  (append_parameter(call.parameters, values), ...);
  enqueue(stream, shape, std::move(call));
}

}  // namespace sinew::twin
