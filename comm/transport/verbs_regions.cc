#include "comm/transport/verbs_regions.h"

#include "sched/base/check.h"

namespace sinew::comm {

VerbsRegions::Lent* VerbsRegions::lend(const std::byte* data, std::int64_t size_bytes,
                                       std::int64_t likely_bytes, int access) {
  CHECK_LE(size_bytes, likely_bytes);
  for (Lent& lent : lent_) {
    if (lent.uses == 0 || lent.access != access || data < lent.begin ||
        data + size_bytes > lent.begin + lent.size_bytes)
      continue;
    ++lent.uses;
    ++lent.keeps;
    return &lent;
  }
  // Where all of it is too much for a limit, the part that is needed now may do.
  for (const std::int64_t size : {likely_bytes, size_bytes}) {
    Lent lent;
    lent.region.reset(verbs().reg_mr(domain_, const_cast<std::byte*>(data),
                                     static_cast<std::size_t>(size), access));
    if (lent.region == nullptr) continue;
    lent.begin = data;
    lent.size_bytes = size;
    lent.access = access;
    lent.uses = lent.keeps = 1;
    return &lent_.emplace_back(std::move(lent));
  }
  return nullptr;
}

void VerbsRegions::end(Lent* lent) {
  CHECK_GT(lent->uses, 0);
  --lent->uses;
}

void VerbsRegions::release(Lent* lent) {
  CHECK_GT(lent->keeps, lent->uses);
  if (--lent->keeps > 0) return;
  lent_.remove_if([&](const Lent& one) { return &one == lent; });
}

}  // namespace sinew::comm
