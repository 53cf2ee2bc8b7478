#include "bench/kernels/memory_bound.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "bench/kernels/roofline.h"
#include "kernels/cpu.h"

namespace sinew::bench {
namespace {

// What the current row is called without its size, and what a byte costs each kernel whose arrays
// lie in the first level cache. One thread runs the rows.
struct Rows {
  std::string kernel;
  std::map<std::string, double> first_level_seconds_per_byte;
};
Rows& rows() {
  static Rows state;
  return state;
}

// 8192, 64 MiB
bool is_size(const std::string& word) {
  const auto digits_end = word.find_first_not_of("0123456789");
  return digits_end != 0 && !word.empty() &&
         (digits_end == std::string::npos || word[digits_end] == ' ');
}

}  // namespace

void begin_row(const std::string& name) {
  std::istringstream words(name);
  std::string kernel;
  for (std::string word; std::getline(words, word, '/');)
    if (!is_size(word)) kernel += word + '/';
  rows().kernel = kernel;
}

Arrays::Arrays(int count, std::int64_t size_bytes)
    : stride_bytes_((size_bytes + 4095) / 4096 * 4096 + 17 * 64) {
  constexpr std::int64_t kHugePage = 2 << 20;
  const std::int64_t total = (stride_bytes_ * count + kHugePage - 1) / kHugePage * kHugePage;
  block_.reset(static_cast<char*>(std::aligned_alloc(kHugePage, static_cast<std::size_t>(total))));
  // A hint; where the system does not follow it, ordinary pages are used.
  (void)madvise(block_.get(), static_cast<std::size_t>(total), MADV_HUGEPAGE);
  std::memset(block_.get(), 0, static_cast<std::size_t>(total));
}

void Arrays::Free::operator()(char* memory) const { std::free(memory); }

int calls_per_block(const Traffic& traffic) {
  // A block of about 1 MB, some 10 us and more; at most what calls of 5 ns can fill 50 us with.
  const double bytes = std::max(traffic.read_bytes + traffic.written_bytes, 100.0);
  return static_cast<int>(std::max(1e6 / bytes, 1.0));
}

void report(benchmark::State& state, const Traffic& traffic, double seconds_per_call) {
  const double moved = traffic.read_bytes + traffic.written_bytes;
  const double copy_seconds = moved / copy_bytes_per_second(traffic.footprint_bytes);
  const double read_seconds = traffic.read_bytes / read_bytes_per_second(traffic.footprint_bytes);
  const double write_seconds =
      traffic.written_bytes / write_bytes_per_second(traffic.footprint_bytes);
  state.counters["best_ns"] = seconds_per_call * 1e9;
  state.counters["GB/s"] = moved / seconds_per_call * 1e-9;
  state.counters["of_copy"] = copy_seconds / seconds_per_call;
  state.counters["of_bound"] =
      std::max({copy_seconds, read_seconds, write_seconds}) / seconds_per_call;
  auto& first_level = rows().first_level_seconds_per_byte;
  if (traffic.footprint_bytes <= kernels::cpu().l1_bytes)
    first_level[rows().kernel] = seconds_per_call / moved;
  if (const auto row = first_level.find(rows().kernel); row != first_level.end())
    state.counters["of_arithmetic"] = row->second * moved / seconds_per_call;
}

}  // namespace sinew::bench
