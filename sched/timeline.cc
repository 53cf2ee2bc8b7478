#include "sched/timeline.h"

#include <algorithm>

namespace sinew::sched {

double Timeline::begin_s() const {
  double begin = spans.empty() ? 0 : spans.front().begin_s;
  for (const Span& span : spans) begin = std::min(begin, span.begin_s);
  return begin;
}

double Timeline::end_s() const {
  double end = spans.empty() ? 0 : spans.front().end_s;
  for (const Span& span : spans) end = std::max(end, span.end_s);
  return end;
}

}  // namespace sinew::sched
