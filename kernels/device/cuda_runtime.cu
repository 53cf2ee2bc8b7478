// The runtime seam on CUDA's runtime. Every call is checked; a failure names what was tried and,
// where there is one, the remedy.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/device/launch.h"
#include "kernels/device/native.h"

namespace sinew::device {

namespace {

std::string remedy(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
      return "; update the NVIDIA driver, or use --device cpu";
    case cudaErrorNoDevice:
      return "; no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu";
    case cudaErrorMemoryAllocation:
      return "; use a smaller batch, more ranks, ZeRO or recomputation";
    case cudaErrorNoKernelImageForDevice:
      return "; this build has code for sm_80, sm_90a and sm_100a only";
    case cudaErrorPeerAccessUnsupported:
      return "; these devices cannot map each other's memory";
    case cudaErrorMapBufferObjectFailed:
    case cudaErrorInvalidResourceHandle:
      return "; processes in containers need a common IPC and PID namespace (--ipc=host "
             "--pid=host)";
    case cudaErrorCooperativeLaunchTooLarge:
      return "; the blocks of this kernel must all fit on the device at once";
    default:
      return {};
  }
}

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // an error that does not stick is answered here and must not show up at the
                       // next call
  throw Error(std::string("cuda: ") + what + ": " + cudaGetErrorString(error) + remedy(error));
}

// In destructors: nothing can be thrown, and the work whose failure this may be has been
// synchronised before.
void ignore(cudaError_t) {}

}  // namespace

struct Event::State {
  cudaEvent_t event = nullptr;
  State() { check(cudaEventCreate(&event), "creating an event"); }
  ~State() { ignore(cudaEventDestroy(event)); }
};

struct Graph::State {
  cudaGraphExec_t executable = nullptr;
  ~State() { ignore(cudaGraphExecDestroy(executable)); }
};

struct Stream::State {
  cudaStream_t stream = nullptr;
  State() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"); }
  ~State() {
    ignore(cudaStreamSynchronize(stream));
    ignore(cudaStreamDestroy(stream));
  }
};

std::string unavailable() {
  // Before the first call that makes a context: kernels of different streams wait for each other's
  // ranks, so that no two streams may share a queue if that can be helped. Another value stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // The runtime calls a driver that is not there one that is too old.
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "there is no NVIDIA driver (libcuda.so.1); install it, or pass the GPU into the "
           "container, or use "
           "--device cpu";
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  cudaGetLastError();
  if (error != cudaSuccess) return cudaGetErrorString(error) + remedy(error);
  if (devices == 0) return "there is no device" + remedy(cudaErrorNoDevice);
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, 0), "reading the properties of device 0");
  if (found.major < 8) {
    return std::string(found.name) + " has compute capability " + std::to_string(found.major) +
           "." + std::to_string(found.minor) +
           "; this build needs 8.0 or newer, or use --device cpu";
  }
  return {};
}

int count() {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "counting devices");
  return devices;
}

void select(int device) {
  const int devices = count();
  if (device < 0 || device >= devices) {
    throw UsageError("device " + std::to_string(device) + " does not exist; legal values: 0 to " +
                     std::to_string(devices - 1));
  }
  check(cudaSetDevice(device), "selecting a device");
}

int selected() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the selected device");
  return device;
}

const Properties& properties() {
  thread_local std::vector<Properties> known;
  const int device = selected();
  const auto index = static_cast<std::size_t>(device);
  if (known.size() <= index) known.resize(index + 1);
  Properties& result = known[index];
  if (result.name.empty()) {
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, device), "reading the properties of a device");
    result = {.name = found.name,
              .multiprocessors = found.multiProcessorCount,
              .major = found.major,
              .minor = found.minor,
              .memory_bytes = found.totalGlobalMem,
              .shared_bytes_block_max = found.sharedMemPerBlockOptin,
              .twin = false};
  }
  return result;
}

bool can_reach(int device, int peer) {
  if (device == peer) return true;
  int reaches = 0;
  check(cudaDeviceCanAccessPeer(&reaches, device, peer), "asking for peer access");
  return reaches != 0;
}

void enable_peer(int peer) {
  if (selected() == peer) return;
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  check(error, "enabling peer access");
}

std::string bus_address() {
  char text[32];
  check(cudaDeviceGetPCIBusId(text, sizeof text, selected()), "asking for a device's bus address");
  return text;
}

// NVLink is told from PCIe by the atomic operations that only it carries between devices.
LinkKind link_to(const std::string& address) {
  const int device = selected();
  int peer = 0;
  if (cudaDeviceGetByPCIBusId(&peer, address.c_str()) != cudaSuccess) {
    cudaGetLastError();
    return LinkKind::kNone;
  }
  if (peer == device) return LinkKind::kSame;
  if (!can_reach(device, peer)) return LinkKind::kNone;
  int atomics = 0;
  check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer),
        "asking for the link between devices");
  return atomics != 0 ? LinkKind::kNvLink : LinkKind::kPcie;
}

Memory::Memory(std::size_t size_bytes, MemoryKind kind) : size_bytes_(size_bytes), kind_(kind) {
  const std::size_t wanted = size_bytes == 0 ? 1 : size_bytes;
  const std::string what = "allocating " + std::to_string(wanted) + " bytes";
  const auto allocated = [&] {
    switch (kind) {
      case MemoryKind::kDevice:
        return cudaMalloc(&data_, wanted);
      case MemoryKind::kPinnedHost:
        return cudaHostAlloc(&data_, wanted, cudaHostAllocPortable);
      case MemoryKind::kManaged:
        return cudaMallocManaged(&data_, wanted);
    }
    return cudaErrorInvalidValue;
  };
  check(allocated(), what.c_str());
}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    kind_ = other.kind_;
  }
  return *this;
}

void Memory::release() noexcept {
  if (data_ != nullptr)
    ignore(kind_ == MemoryKind::kPinnedHost ? cudaFreeHost(data_) : cudaFree(data_));
  data_ = nullptr;
}

Event::Event() : state_(std::make_shared<State>()) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::record(Stream& stream) {
  check(cudaEventRecord(state_->event, stream.state().stream), "recording an event");
}

void Event::synchronize() const {
  check(cudaEventSynchronize(state_->event), "waiting for an event");
}

bool Event::ready() const {
  const cudaError_t error = cudaEventQuery(state_->event);
  if (error == cudaErrorNotReady) return false;
  check(error, "asking for an event");
  return true;
}

double Event::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  synchronize();
  check(cudaEventElapsedTime(&milliseconds, earlier.state_->event, state_->event),
        "timing two events");
  return static_cast<double>(milliseconds) * 1e-3;
}

Graph::Graph() = default;
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::launch(Stream& stream) const {
  check(cudaGraphLaunch(state_->executable, stream.state().stream), "launching a graph");
}

Stream::Stream() : state_(std::make_unique<State>()) {}
Stream::~Stream() = default;

void Stream::copy(void* target, const void* source, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  check(cudaMemcpyAsync(target, source, size_bytes, cudaMemcpyDefault, state_->stream), "copying");
}

void Stream::fill(void* target, std::uint8_t value, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  check(cudaMemsetAsync(target, value, size_bytes, state_->stream), "filling");
}

void Stream::copy_rows(void* target, const void* source, const Rows& rows) {
  if (rows.rows == 0 || rows.row_bytes == 0) return;
  check(cudaMemcpy2DAsync(target, rows.target_stride, source, rows.source_stride, rows.row_bytes,
                          rows.rows, cudaMemcpyDefault, state_->stream),
        "copying rows");
}

void Stream::wait(const Event& event) {
  check(cudaStreamWaitEvent(state_->stream, event.state_->event, 0), "waiting for another stream");
}

void Stream::synchronize() {
  check(cudaStreamSynchronize(state_->stream), "waiting for queued work");
}

bool Stream::idle() {
  const cudaError_t error = cudaStreamQuery(state_->stream);
  if (error == cudaErrorNotReady) return false;
  check(error, "asking for queued work");
  return true;
}

void Stream::begin_capture() {
  check(cudaStreamBeginCapture(state_->stream, cudaStreamCaptureModeThreadLocal),
        "beginning a capture");
}

bool Stream::recording() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(state_->stream, &status), "asking for a capture");
  return status != cudaStreamCaptureStatusNone;
}

bool is_left_out(const char*) { return false; }

Graph Stream::end_capture() {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(state_->stream, &recorded), "ending a capture");
  Graph graph;
  graph.state_ = std::make_unique<Graph::State>();
  const cudaError_t error = cudaGraphInstantiate(&graph.state_->executable, recorded, 0);
  ignore(cudaGraphDestroy(recorded));
  check(error, "making a graph");
  return graph;
}

IpcHandle export_memory(const Memory& memory) {
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, memory.data()), "naming memory to another process");
  IpcHandle result;
  static_assert(sizeof handle <= sizeof result);
  std::memcpy(result.bytes.data(), &handle, sizeof handle);
  return result;
}

Mapping::Mapping(const IpcHandle& handle) {
  cudaIpcMemHandle_t native;
  std::memcpy(&native, handle.bytes.data(), sizeof native);
  check(cudaIpcOpenMemHandle(&data_, native, cudaIpcMemLazyEnablePeerAccess),
        "mapping another process's memory");
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

void Mapping::release() noexcept {
  if (data_ != nullptr) ignore(cudaIpcCloseMemHandle(data_));
  data_ = nullptr;
}

cudaStream_t native_stream(Stream& stream) { return stream.state().stream; }

void launch_untyped(const void* kernel, const LaunchShape& shape, Stream& stream,
                    void** arguments) {
  // What the default of 48 KiB does not cover has to be asked for, per kernel.
  if (shape.shared_bytes > 48 * 1024) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "asking for shared memory");
  }
  const dim3 grid(shape.grid.x, shape.grid.y, shape.grid.z);
  const dim3 block(shape.block.x, shape.block.y, shape.block.z);
  cudaStream_t native = stream.state().stream;
  // A cooperative launch fails when the blocks do not all fit, instead of hanging.
  check(
      shape.residency == Residency::kAllBlocks
          ? cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shape.shared_bytes, native)
          : cudaLaunchKernel(kernel, grid, block, arguments, shape.shared_bytes, native),
      "launching a kernel");
}

}  // namespace sinew::device
