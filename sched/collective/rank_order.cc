#include "sched/collective/rank_order.h"

#include <algorithm>

namespace sinew::sched {

void sum_in_rank_order(Builder& b, int to, int chunk, int chunks, const Messages& messages) {
  const auto before = std::count_if(messages.begin(), messages.end(),
                                    [&](const auto& message) { return message.move.from < to; });
  for (std::ptrdiff_t i = 0; i < std::ssize(messages); ++i) {
    const Builder::Message& message = messages[static_cast<std::size_t>(i)];
    if (i >= before || before == 1) {
      b.receive_reduce(message);  // with one rank before: own + x has the bits of x + own
    } else if (i == 0) {
      b.receive_aside(message);
    } else {
      b.reduce_aside(message);
    }
    if (i == before - 1 && before > 1) b.fold(to, chunk, chunks);
  }
}

}  // namespace sinew::sched
