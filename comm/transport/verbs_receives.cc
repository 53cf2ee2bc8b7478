#include "comm/transport/verbs_receives.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace sinew::comm {

namespace {

// The most that a shared queue may hold; negative: nothing is said, or nothing sensible.
int asked_limit() {
  const char* text = std::getenv("SINEW_VERBS_SHARED_RECEIVES");
  if (text == nullptr) return -1;
  const std::string_view all(text);
  int limit = -1;
  const auto [end, code] = std::from_chars(all.data(), all.data() + all.size(), limit);
  return code == std::errc() && end == all.data() + all.size() ? limit : -1;
}

}  // namespace

void VerbsReceives::open(ibv_pd* domain, const std::string& device, const ibv_device_attr& limits,
                         int peers) {
  const int needed = std::max(1, peers) * kOfPeer;
  const auto none = [&](const std::string& why) {
    description_ = fmt::format("a receive queue of {} for each peer, since {}", kOfPeer, why);
  };
  const int asked = asked_limit();
  if (limits.max_srq == 0 || limits.max_srq_wr == 0)
    return none(fmt::format("{} shares none between peers", device));
  if (asked >= 0 && asked < needed) {
    return none(fmt::format("SINEW_VERBS_SHARED_RECEIVES={} is less than the {} that {} peers need",
                            asked, needed, peers));
  }
  if (limits.max_srq_wr < needed) {
    return none(fmt::format("one that {} shares holds {} and {} peers need {}", device,
                            limits.max_srq_wr, peers, needed));
  }
  ibv_srq_init_attr wish{};
  wish.attr.max_wr = static_cast<std::uint32_t>(needed);
  wish.attr.max_sge = 1;
  queue_.reset(verbs().create_srq(domain, &wish));
  if (queue_ == nullptr) {
    return none(
        fmt::format("{} refused to share one of {}: {}", device, needed, std::strerror(errno)));
  }
  const int code = post(nullptr, needed);
  if (code != 0) {
    queue_.reset();
    return none(fmt::format("the one that {} shares takes fewer than {}: {}", device, needed,
                            std::strerror(code)));
  }
  description_ = fmt::format("one receive queue of {} for {} peers", needed, peers);
}

void VerbsReceives::attach(ibv_qp_init_attr& wish) const {
  wish.srq = queue_.get();
  wish.cap.max_recv_wr = shared() ? 0 : static_cast<std::uint32_t>(kOfPeer);
  wish.cap.max_recv_sge = shared() ? 0 : 1;
}

int VerbsReceives::begin(ibv_qp* connection) const {
  return shared() ? 0 : post(connection, kOfPeer);
}

int VerbsReceives::used(ibv_qp* connection, int* owed) {
  int& all = shared() ? owed_ : *owed;
  if (++all < kAtOnce) return 0;
  all = 0;
  return post(connection, kAtOnce);
}

int VerbsReceives::post(ibv_qp* connection, int count) const {
  ibv_recv_wr requests[kAtOnce] = {};
  for (; count > 0; count -= kAtOnce) {
    const int now = std::min(count, kAtOnce);
    for (int i = 0; i < now; ++i) requests[i].next = i + 1 < now ? &requests[i + 1] : nullptr;
    ibv_recv_wr* bad = nullptr;
    const int code = shared() ? ibv_post_srq_recv(queue_.get(), requests, &bad)
                              : ibv_post_recv(connection, requests, &bad);
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace sinew::comm
