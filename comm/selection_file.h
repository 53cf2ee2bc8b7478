// SelectionFile: which algorithm was fastest where, as measured; `auto` takes its rows before the
// built-in ones. One row a line, blanks between the fields, # begins a comment:
//
//   all_reduce 2 2048 one_shot shm  of 2 ranks over shm, up to 2048 bytes of the full vector
//   all_reduce 2 any two_shot shm   and beyond
//
// Rows of one operation, number of ranks and transport stand by rising bytes and end with `any`.
// Without a transport they hold over every one that no other row names. Other numbers of ranks and
// transports keep the built-in rows.
//
// Never does: measure, or decide what is not in it. Every rank must read the same file: ranks that
// differ call different algorithms, which the first message shows.
// Threads: const objects may be shared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sched/collective/contract.h"

namespace sinew::comm {

class SelectionFile {
 public:
  static constexpr std::int64_t kAnyBytes = std::int64_t{1} << 62;

  struct Row {
    sched::Collective op = sched::Collective::kBarrier;
    int world = 1;
    std::int64_t most_bytes = kAnyBytes;
    std::string algorithm;
    std::string transport;  // Transport::Traits::name; empty: any
    std::string reason;     // in words, made from the rest
  };

  SelectionFile() = default;
  // Throws UsageError naming `where`, the line, what is wrong and what is legal.
  SelectionFile(std::string_view text, const std::string& where);

  [[nodiscard]] std::span<const Row> rows() const { return rows_; }
  // The row that holds these bytes; null when the operation has none for this number of ranks over
  // this transport.
  [[nodiscard]] const Row* find(sched::Collective op, std::int64_t bytes, int world,
                                std::string_view transport) const;
  // Those of this number of ranks and transport, in their order; of an operation that has some of
  // the transport's name, these alone.
  [[nodiscard]] std::vector<const Row*> rows_for(int world, std::string_view transport) const;
  // Puts `rows`, all of one operation, number of ranks and transport, in the place of those it had.
  void replace(std::span<const Row> rows);
  // The text form, which reads back as the same rows.
  [[nodiscard]] std::string print() const;

 private:
  std::vector<Row> rows_;
};

inline constexpr const char* kSelectionVariable = "SINEW_SELECTION";

// The file that the environment variable above names, read at the first call; without rows when it
// is not set. Throws UsageError when it cannot be read or is malformed.
[[nodiscard]] const SelectionFile& selection_file();

}  // namespace sinew::comm
