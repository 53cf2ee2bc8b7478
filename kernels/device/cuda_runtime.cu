// The runtime seam on CUDA's runtime. Every call is checked; a failure names what was tried and,
// where there is one, the remedy.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
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
    case cudaErrorStubLibrary:
      return "; the libcuda.so.1 found first is the toolkit's stub: take its folder out of "
             "LD_LIBRARY_PATH";
    case cudaErrorCompatNotSupportedOnDevice:
      return "; the libcuda.so.1 found first is of a compatibility package that does not serve "
             "this "
             "GPU: take its folder out of LD_LIBRARY_PATH";
    case cudaErrorSystemDriverMismatch:
      return "; libcuda.so.1 and the loaded kernel module are of different drivers: restart the "
             "machine, or mount the host's libraries into the container";
    case cudaErrorSystemNotReady:
      return "; the NVSwitch fabric is not up: start nvidia-fabricmanager";
    case cudaErrorDevicesUnavailable:
      return "; another process has the GPU to itself: nvidia-smi -c DEFAULT, or one rank per GPU";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsRpcFailure:
      return "; start nvidia-cuda-mps-control -d, or unset CUDA_MPS_PIPE_DIRECTORY";
    case cudaErrorUnsupportedPtxVersion:
      return "; update the NVIDIA driver, or build for this GPU's architecture "
             "(SINEW_CUDA_ARCHITECTURES)";
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

// 13.0 of 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
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
  explicit State(Urgency urgency) {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities of streams");
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       urgency == Urgency::kUrgent ? greatest : least),
          "creating a stream");
  }
  ~State() {
    ignore(cudaStreamSynchronize(stream));
    ignore(cudaStreamDestroy(stream));
  }
};

std::string unavailable() {
  // Before the first call that makes a context: kernels of different streams wait for each other's
  // ranks, so that no two streams may share a queue if that can be helped. Another value stays.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  // Code that is loaded when it is first launched waits for the device, and so for kernels that
  // wait for what comes behind it.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // The runtime calls a driver that is not there one that is too old.
  int driver = 0;
  int devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    if (cudaGetDeviceCount(&devices) == cudaErrorStubLibrary)
      return cudaGetErrorString(cudaErrorStubLibrary) + remedy(cudaErrorStubLibrary);
    return "there is no NVIDIA driver (libcuda.so.1); install it, or pass the GPU into the "
           "container, or use "
           "--device cpu";
  }
  const cudaError_t error = cudaGetDeviceCount(&devices);
  cudaGetLastError();
  if (error != cudaSuccess) {
    int runtime = 0;
    check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
    return std::string(cudaGetErrorString(error)) + " (the driver is for CUDA " +
           version_text(driver) + ", this build for " + version_text(runtime) + ")" + remedy(error);
  }
  if (devices == 0) return "there is no device" + remedy(cudaErrorNoDevice);
  cudaDeviceProp found{};
  check(cudaGetDeviceProperties(&found, 0), "reading the properties of device 0");
  if (found.major < 8) {
    return std::string(found.name) + " has compute capability " + std::to_string(found.major) +
           "." + std::to_string(found.minor) +
           "; this build needs 8.0 or newer, or use --device cpu";
  }
  if (found.concurrentManagedAccess == 0) {
    return std::string(found.name) +
           " lets the host touch no managed memory while a kernel runs, as under WSL and some "
           "virtual GPUs; use a machine that does, or --device cpu";
  }
  if (found.memoryPoolsSupported == 0) {
    return std::string(found.name) +
           " has no memory pools, as some virtual GPUs; use a machine that does, or --device cpu";
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

namespace {

constexpr std::size_t kBlockBytes = std::size_t{2} << 20;

// Orders what is made in and given back to the selected device's pool, and nothing else. Never
// destroyed: memory may be freed at the program's end.
cudaStream_t pool_stream() {
  static std::mutex mutex;
  static auto* const kStreams = new std::map<int, cudaStream_t>;
  const std::lock_guard lock(mutex);
  const int device = selected();
  const auto found = kStreams->find(device);
  if (found != kStreams->end()) return found->second;
  // The pool keeps what is given back: asking the driver again may wait for the device.
  cudaMemPool_t pool = nullptr;
  std::uint64_t kept_bytes = UINT64_MAX;
  check(cudaDeviceGetDefaultMemPool(&pool, device), "asking for the device's pool of memory");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes),
        "keeping the pool's memory");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return kStreams->emplace(device, stream).first->second;
}

// Usable by every stream when it returns.
cudaError_t allocate_from_pool(void** data, std::size_t size_bytes) {
  cudaStream_t stream = pool_stream();
  const cudaError_t error = cudaMallocAsync(data, size_bytes, stream);
  return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

}  // namespace

Memory::Memory(std::size_t size_bytes, MemoryKind kind) : size_bytes_(size_bytes), kind_(kind) {
  const std::size_t wanted = size_bytes == 0 ? 1 : size_bytes;
  const std::string what = "allocating " + std::to_string(wanted) + " bytes";
  const auto allocated = [&] {
    switch (kind) {
      case MemoryKind::kDevice:
        return allocate_from_pool(&data_, wanted);
      case MemoryKind::kPinnedHost:
        return cudaHostAlloc(&data_, wanted, cudaHostAllocPortable);
      case MemoryKind::kManaged:
        return cudaMallocManaged(&data_, wanted);
      case MemoryKind::kShared:
        // The driver shares whole blocks of 2 MiB (cudaIpcGetMemHandle): this one is nobody else's.
        return cudaMalloc(&data_, (wanted + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
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
  // What came from a pool goes back to it without a wait.
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

Stream::Stream(Urgency urgency) : state_(std::make_unique<State>(urgency)) {}
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
  // Each kernel with the urgency of the stream it was recorded on.
  const cudaError_t error = cudaGraphInstantiate(&graph.state_->executable, recorded,
                                                 cudaGraphInstantiateFlagUseNodePriority);
  ignore(cudaGraphDestroy(recorded));
  check(error, "making a graph");
  return graph;
}

IpcHandle export_memory(const Memory& memory) {
  if (memory.kind() != MemoryKind::kShared)
    throw Error("cuda: only memory of kind kShared is named to other processes");
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

namespace {

// Blocks that an empty device runs at once.
std::int64_t blocks_at_once(const void* kernel, int threads, std::size_t shared_bytes) {
  using Key = std::tuple<int, const void*, int, std::size_t>;
  thread_local std::map<Key, std::int64_t> known;
  const auto [found, unknown] =
      known.try_emplace(Key{selected(), kernel, threads, shared_bytes}, std::int64_t{0});
  if (unknown) {
    int blocks = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes),
          "asking how many blocks fit");
    found->second = std::int64_t{blocks} * properties().multiprocessors;
  }
  return found->second;
}

// Blocks get more than 48 KiB, static memory counted, only where the kernel has asked. Asked once,
// for all there is: threads that asked for what each of them needs would take it from one another.
void allow_shared(const void* kernel, std::size_t shared_bytes) {
  using Key = std::pair<int, const void*>;
  thread_local std::map<Key, std::size_t> known;
  const auto [found, unknown] = known.try_emplace(Key{selected(), kernel}, std::size_t{0});
  if (unknown) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel's attributes");
    const std::size_t most = properties().shared_bytes_block_max - attributes.sharedSizeBytes;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(most)),
          "asking for shared memory");
    found->second = most;
  }
  if (shared_bytes > found->second) {
    throw Error("cuda: launching a kernel: its blocks take " + std::to_string(shared_bytes) +
                " bytes of shared memory, " + properties().name + " has " +
                std::to_string(found->second) + "; use --device cpu");
  }
}

}  // namespace

void launch_untyped(const void* kernel, const LaunchShape& shape, Stream& stream,
                    void** arguments) {
  if (shape.shared_bytes > 0) allow_shared(kernel, shape.shared_bytes);
  const dim3 grid(shape.grid.x, shape.grid.y, shape.grid.z);
  const dim3 block(shape.block.x, shape.block.y, shape.block.z);
  // Not a cooperative launch, which begins only when the device has room for all blocks at once,
  // and need not run beside another: blocks of one grid do not wait for each other, and a peer's
  // grid may have to run beside this one.
  if (shape.residency == Residency::kAllBlocks) {
    const std::int64_t most =
        blocks_at_once(kernel, static_cast<int>(shape.block.count()), shape.shared_bytes);
    if (static_cast<std::int64_t>(shape.grid.count()) > most) {
      throw Error("cuda: launching a kernel: " + std::to_string(shape.grid.count()) +
                  " blocks must run at once, this device runs " + std::to_string(most));
    }
  }
  check(cudaLaunchKernel(kernel, grid, block, arguments, shape.shared_bytes, stream.state().stream),
        "launching a kernel");
}

}  // namespace sinew::device
