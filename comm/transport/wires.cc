// The wires of this build.
#include <cstdio>

#include "comm/error.h"
#include "comm/transport/wire.h"

namespace sinew::comm {

#if SINEW_HAVE_VERBS
std::string verbs_missing(std::string_view argument);
std::unique_ptr<Wire> make_verbs(const WirePlace& place);
#endif
#if SINEW_HAVE_UCX
std::string ucx_missing(std::string_view argument);
std::unique_ptr<Wire> make_ucx(const WirePlace& place);
#endif

namespace {

#if !SINEW_HAVE_VERBS
std::string verbs_missing(std::string_view) {
  return "verbs: this build has no libibverbs; install libibverbs-dev and build again";
}
constexpr std::unique_ptr<Wire> (*make_verbs)(const WirePlace&) = nullptr;
#endif
#if !SINEW_HAVE_UCX
std::string ucx_missing(std::string_view) {
  return "ucx: this build has no UCX; install libucx-dev and build again";
}
constexpr std::unique_ptr<Wire> (*make_ucx)(const WirePlace&) = nullptr;
#endif

const WireKind kKinds[] = {{"verbs", verbs_missing, make_verbs}, {"ucx", ucx_missing, make_ucx}};

}  // namespace

std::span<const WireKind> wire_kinds() { return kKinds; }

void agree_on_setup(Bootstrap& bootstrap, const std::string& error) {
  struct Report {
    char text[512];
  };
  Report mine{};
  std::snprintf(mine.text, sizeof mine.text, "%s", error.c_str());
  const std::vector<Report> all = bootstrap.exchange(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].text[0] == '\0') continue;
    throw Error(Cause::kResource, bootstrap.rank(), static_cast<int>(rank),
                "setup: rank " + std::to_string(rank) + ": " + all[rank].text);
  }
}

}  // namespace sinew::comm
