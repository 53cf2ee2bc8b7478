#include "comm/device/messages.h"

#include <algorithm>
#include <string>

#include "comm/error.h"
#include "sched/base/check.h"

namespace sinew::comm {

namespace {

// A receive may wait for long while others compute: it takes few multiprocessors.
constexpr int kMessageChannelsMax = 4;

}  // namespace

DeviceMessages::DeviceMessages(Bootstrap& bootstrap, const ResidentOptions& options)
    : options_(options) {
  require_legal(options, bootstrap.world());
  links_.rank = bootstrap.rank();
  links_.world = bootstrap.world();
  links_.channels = std::min(options.channels, kMessageChannelsMax);
  links_.slots = options.slots;
  links_.slot_bytes = options.slot_bytes;
  memory_ = PeerMemory(bootstrap, static_cast<std::size_t>(links_.size_bytes()));
  for (int r = 0; r < links_.world; ++r) links_.memory[r] = memory_.of(r);
}

// The first unit of a piece tells the message's size.
MessageCall DeviceMessages::call_of(const DeviceMessage& message) {
  if (message.tag < 0 || message.tag >= kTags) {
    throw UsageError("tag " + std::to_string(message.tag) +
                     " of a message on device memory; legal values: 0 to " +
                     std::to_string(kTags - 1));
  }
  CHECK(message.peer >= 0 && message.peer < links_.world && message.peer != links_.rank);
  MessageCall call{};
  call.links = links_;
  call.data = message.data;
  call.element_bytes = static_cast<int>(size_of(message.dtype));
  call.size_bytes = message.count * call.element_bytes;
  call.timeout_ns = static_cast<std::uint64_t>(options_.timeout_s * 1e9);
  call.flag = flag_of(++count_, 0);
  call.peer = message.peer;
  call.lane = message.tag;
  const std::int64_t units = (call.size_bytes + kUnitBytes - 1) / kUnitBytes;
  const std::int64_t round =
      links_.channels * (units_in(Protocol::kSimple, links_.slot_bytes, 1) - 1);
  call.segments = static_cast<int>(std::max<std::int64_t>(1, (units + round - 1) / round));
  return call;
}

void DeviceMessages::send(const DeviceMessage& message, device::Stream& stream) {
  launch_send(call_of(message), options_.threads, stream);
}

void DeviceMessages::receive(const DeviceMessage& message, device::Stream& stream) {
  launch_receive(call_of(message), options_.threads, stream);
}

void DeviceMessages::check(device::Stream& stream) {
  std::uint64_t word = 0;
  stream.copy(&word, links_.memory[links_.rank], sizeof word);
  stream.synchronize();
  if (word == 0) return;
  const int waiting = abort_rank(word);
  const int peer = abort_peer(word);
  const std::string who = "message on device memory: rank " + std::to_string(waiting);
  if (abort_is_mismatch(word)) {
    throw Error(Cause::kMismatch, links_.rank, peer,
                who + " found another size than it asked for from rank " + std::to_string(peer));
  }
  const std::string gone = memory_.gone(peer);
  throw Error(gone.empty() ? Cause::kTimeout : Cause::kPeerGone, links_.rank, peer,
              who + " waited longer than " + seconds_text(options_.timeout_s) + " for rank " +
                  std::to_string(peer) + (gone.empty() ? "" : ", which " + gone));
}

}  // namespace sinew::comm
