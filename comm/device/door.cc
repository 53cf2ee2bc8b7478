#include "comm/device/door.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/device/choice.h"
#include "comm/device/messages.h"
#include "comm/engine.h"
#include "comm/select.h"
#include "kernels/device/required.h"
#include "sched/base/check.h"

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

// The ends of calls that the computing stream has not been made to wait for.
class Tickets {
 public:
  std::uint64_t end_of(device::Stream& stream) {
    device::Event event = take_event();
    event.record(stream);
    open_.emplace(++latest_, std::move(event));
    return latest_;
  }
  [[nodiscard]] const device::Event& at(std::uint64_t ticket) const {
    const auto found = open_.find(ticket);
    CHECK(found != open_.end());
    return found->second;
  }
  void give_up(std::uint64_t ticket) {
    const auto found = open_.find(ticket);
    CHECK(found != open_.end());
    free_.push_back(std::move(found->second));
    open_.erase(found);
  }

 private:
  device::Event take_event() {
    if (free_.empty()) return {};
    device::Event event = std::move(free_.back());
    free_.pop_back();
    return event;
  }

  std::map<std::uint64_t, device::Event> open_;
  std::vector<device::Event> free_;
  std::uint64_t latest_ = 0;
};

class ResidentDoor final : public DeviceDoor {
 public:
  // own: null, or the bootstrap where nobody else keeps it.
  ResidentDoor(Bootstrap& bootstrap, std::unique_ptr<Bootstrap> own, device::Stream& stream,
               std::function<bool(const void*)> owner, const ResidentOptions& options, DoorUse use)
      : own_bootstrap_(std::move(own)),
        bootstrap_(bootstrap),
        stream_(stream),
        owns_(std::move(owner)),
        resident_(bootstrap_, options) {
    if (use == DoorUse::kCollectivesAndMessages) messages_.emplace(bootstrap_, options);
  }

  [[nodiscard]] bool owns(const void* pointer) const override { return owns_(pointer); }

  [[nodiscard]] Started start(const Ask& ask, std::string_view algorithm) override {
    const std::int64_t bytes = full_bytes(ask.op, ask.count, ask.dtype, resident_.world());
    const ResidentChoice choice =
        choose(resident_, {.op = ask.op,
                           .root = ask.root,
                           .full_bytes = bytes,
                           .algorithm = algorithm.empty() ? "auto" : algorithm});
    const ResidentWork work = {ask.input, ask.output, ask.count, ask.dtype, ask.reduce};
    begun_.record(stream_);
    REQUIRED(collective_after_its_input, collectives_.wait(begun_));
    comm::run(resident_, choice, ask.root, work, collectives_);
    return {resident_.sent_bytes(*choice.row, ask.root, work), tickets_.end_of(collectives_)};
  }

  [[nodiscard]] bool takes_messages() const override { return messages_.has_value(); }
  [[nodiscard]] std::uint64_t start_send(const void* data, std::int64_t count, DType dtype,
                                         Way way) override {
    device::Stream& stream = stream_of(End::kSend, way);
    begun_.record(stream_);
    REQUIRED(send_after_what_made_it, stream.wait(begun_));
    // A send reads only.
    auto* source = const_cast<char*>(static_cast<const char*>(data));
    messages_->send({source, count, dtype, way.peer, way.tag}, stream);
    return tickets_.end_of(stream);
  }
  [[nodiscard]] std::uint64_t start_recv(void* data, std::int64_t count, DType dtype,
                                         Way way) override {
    device::Stream& stream = stream_of(End::kReceive, way);
    begun_.record(stream_);
    REQUIRED(receive_after_what_lay_there, stream.wait(begun_));
    messages_->receive({static_cast<char*>(data), count, dtype, way.peer, way.tag}, stream);
    return tickets_.end_of(stream);
  }

  void finish(std::uint64_t ticket) override {
    REQUIRED(compute_after_call, stream_.wait(tickets_.at(ticket)));
    tickets_.give_up(ticket);
  }
  [[nodiscard]] bool done(std::uint64_t ticket) override {
    if (stream_.recording() || !tickets_.at(ticket).ready()) return false;
    tickets_.give_up(ticket);
    return true;
  }

  void check() override {
    resident_.check(collectives_);
    for (auto& [way, stream] : ways_) messages_->check(*stream);
  }

  void close() override {
    check();
    resident_.close(bootstrap_);
    if (messages_) messages_->close(bootstrap_);
  }

 private:
  enum class End : std::uint8_t { kSend, kReceive };
  // Ways do not wait for each other, so each has a stream.
  device::Stream& stream_of(End end, Way way) {
    auto& stream = ways_[{end, way.peer, way.tag}];
    if (stream == nullptr) stream = std::make_unique<device::Stream>(device::Urgency::kUrgent);
    return *stream;
  }

  std::unique_ptr<Bootstrap> own_bootstrap_;
  Bootstrap& bootstrap_;
  device::Stream& stream_;
  std::function<bool(const void*)> owns_;
  Resident resident_;
  std::optional<DeviceMessages> messages_;
  device::Stream collectives_{device::Urgency::kUrgent};
  std::map<std::tuple<End, int, int>, std::unique_ptr<device::Stream>> ways_;
  device::Event begun_;
  Tickets tickets_;
};

}  // namespace

std::unique_ptr<DeviceDoor> open_device_door(Communicator& communicator, device::Stream& stream,
                                             std::function<bool(const void*)> owns,
                                             const ResidentOptions& options, DoorUse use) {
  auto bootstrap = std::make_unique<CommunicatorBootstrap>(communicator);
  CommunicatorBootstrap& set_up = *bootstrap;
  return std::make_unique<ResidentDoor>(set_up, std::move(bootstrap), stream, std::move(owns),
                                        options, use);
}

std::unique_ptr<DeviceDoor> open_device_door(Bootstrap& bootstrap, device::Stream& stream,
                                             std::function<bool(const void*)> owns,
                                             const ResidentOptions& options, DoorUse use) {
  return std::make_unique<ResidentDoor>(bootstrap, nullptr, stream, std::move(owns), options, use);
}

}  // namespace sinew::comm
