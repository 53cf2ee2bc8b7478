// launch: the only way a kernel starts. kernel is a __global__ function; arguments are converted to
// its parameters and copied now. Throws device::Error when the shape is refused.
#pragma once

#include <tuple>
#include <type_traits>

#include "kernels/device/launch_shape.h"
#include "kernels/device/runtime.h"

#ifndef __CUDACC__
#include "kernels/device/twin/launch.h"
#endif

namespace sinew::device {

// What a kernel's parameters may take on every architecture.
constexpr std::size_t kParameterBytesMax = 4096;

#ifdef __CUDACC__

// In cuda_runtime.cu, which knows the driver's types.
void launch_untyped(const void* kernel, const LaunchShape& shape, Stream& stream, void** arguments);

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream& stream,
            Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> values(static_cast<Parameters>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        launch_untyped(reinterpret_cast<const void*>(kernel), shape, stream, pointers);
      },
      values);
}

#else

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream& stream,
            Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<std::decay_t<Parameters> > && ...),
                "kernel arguments are plain data");
  static_assert(sizeof(std::tuple<std::decay_t<Parameters>...>) <= kParameterBytesMax);
  twin::launch(kernel, shape, stream, static_cast<Parameters>(arguments)...);
}

#endif

}  // namespace sinew::device
