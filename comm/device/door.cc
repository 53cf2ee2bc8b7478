#include "comm/device/door.h"

#include <utility>

#include "comm/device/choice.h"
#include "comm/engine.h"
#include "comm/select.h"

namespace sinew::comm {

namespace {

// Blobs by the communicator's own all-gather, on host memory.
class CommunicatorBootstrap final : public Bootstrap {
 public:
  explicit CommunicatorBootstrap(Communicator& communicator) : communicator_(communicator) {}
  [[nodiscard]] int rank() const override { return communicator_.rank(); }
  [[nodiscard]] int world() const override { return communicator_.world(); }
  void all_gather(std::span<const std::byte> mine, std::byte* all) override {
    communicator_.all_gather(mine.data(), all, static_cast<std::int64_t>(mine.size()), DType::kU8);
  }

 private:
  Communicator& communicator_;
};

class ResidentDoor final : public DeviceDoor {
 public:
  ResidentDoor(Communicator& communicator, device::Stream& stream,
               std::function<bool(const void*)> owner, const ResidentOptions& options)
      : bootstrap_(communicator),
        stream_(stream),
        owns_(std::move(owner)),
        resident_(bootstrap_, options) {}

  [[nodiscard]] bool owns(const void* pointer) const override { return owns_(pointer); }

  std::int64_t run(const Ask& ask, std::string_view algorithm) override {
    const std::int64_t bytes = full_bytes(ask.op, ask.count, ask.dtype, resident_.world());
    const ResidentChoice choice =
        choose(resident_, {.op = ask.op,
                           .root = ask.root,
                           .full_bytes = bytes,
                           .algorithm = algorithm.empty() ? "auto" : algorithm});
    const ResidentWork work = {ask.input, ask.output, ask.count, ask.dtype, ask.reduce};
    comm::run(resident_, choice, ask.root, work, stream_);
    return resident_.sent_bytes(*choice.row, ask.root, work);
  }

  void check() override { resident_.check(stream_); }

  void close() override {
    resident_.check(stream_);
    resident_.close(bootstrap_);
  }

 private:
  CommunicatorBootstrap bootstrap_;
  device::Stream& stream_;
  std::function<bool(const void*)> owns_;
  Resident resident_;
};

}  // namespace

std::unique_ptr<DeviceDoor> open_device_door(Communicator& communicator, device::Stream& stream,
                                             std::function<bool(const void*)> owns,
                                             const ResidentOptions& options) {
  return std::make_unique<ResidentDoor>(communicator, stream, std::move(owns), options);
}

}  // namespace sinew::comm
