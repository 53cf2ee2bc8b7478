// local: ranks are threads of one process, so a block is heap memory and every address is a peer's
// address.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "comm/error.h"
#include "comm/memory.h"

namespace sinew::comm {

namespace {

constexpr std::size_t kAlign = 4096;

struct Owned {
  std::atomic<int> views;
};

// The last view frees: its acquire meets the release of every other view's decrement.
void give_up(std::byte* data, std::size_t, void* handle) {
  auto* owned = static_cast<Owned*>(handle);
  if (owned->views.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ::operator delete(data, std::align_val_t(kAlign));
  delete owned;
}

class ThreadMemory final : public Memory {
 public:
  [[nodiscard]] std::string_view name() const override { return "local"; }
  [[nodiscard]] bool one_address_space() const override { return true; }

  [[nodiscard]] std::vector<Mapping> share(Bootstrap& bootstrap, std::size_t size_bytes,
                                           const std::vector<int>&) override {
    struct Blob {
      std::byte* data;
      Owned* owned;
      std::size_t size_bytes;
    };
    Blob mine{nullptr, nullptr, size_bytes};
    if (size_bytes > 0) {
      // Addresses of small blocks must differ too, hence whole alignment units.
      const std::size_t whole = (size_bytes + kAlign - 1) / kAlign * kAlign;
      mine.data = static_cast<std::byte*>(::operator new(whole, std::align_val_t(kAlign)));
      std::memset(mine.data, 0, whole);
      mine.owned = new Owned{bootstrap.world()};
    }
    std::vector<Mapping> views;
    for (const Blob& blob : bootstrap.exchange(mine)) {
      if (blob.data == nullptr) {
        views.emplace_back();
      } else {
        views.emplace_back(blob.data, blob.size_bytes, blob.owned, give_up);
      }
    }
    return views;
  }
};

}  // namespace

std::unique_ptr<Memory> thread_memory() { return std::make_unique<ThreadMemory>(); }

}  // namespace sinew::comm
