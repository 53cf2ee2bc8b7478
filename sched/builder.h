// Builder: how an algorithm writes a Schedule, from the global view. Each call writes both ends of
// a move, so an unmatched send cannot be written. The builder tracks where the value of each chunk
// lives on each rank (Input until first written, then Output or Scratch), so algorithms speak of
// chunks and ranks only.
//
// Never does: decide (the algorithm does), prove (verify.h does, on the finished Schedule).
// Threads: one builder, one thread.
//
// Invariants of what finish() returns, for any sequence of legal calls
//
//   1. Input is only read; Input[c] and Output[c] count as one place in the derived dependences.
//   2. A step depends on the last writer of what it reads, and on the readers since then (or else
//      the last writer) of what it writes; but on none that another of these waits for itself.
//   3. Sends keep the order of the calls, receives and reductions keep theirs. A send stands as
//      early as its own dependences and earlier sends allow, so a rank that blocks on a receive has
//      already sent all it can; next come the final copies that may start.
//   4. A range of chunks is one message, in parts (Step::joined) only where it wraps around the
//   last
//      chunk or where a sum has to read from two spaces. If a range lies partly in Input, that part
//      is copied first to where the rest lies.
//   5. A received range goes to Output if the rank has all of these slots, else to Scratch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sched/schedule.h"

namespace sinew::sched {

struct Move {
  int chunk = 0;   // first chunk
  int chunks = 1;  // how many consecutive ones, cyclically: chunk + chunks may pass the last chunk
  int from = 0;
  int to = 0;
  int lane = 0;
};

// A message of chunks that need not be consecutive: one message, in parts.
struct Scattered {
  std::vector<int> chunks;
  int from = 0;
  int to = 0;
  int lane = 0;
};

// A chunk in a stated place of a rank. Scratch c and scratch c + chunks() are two places for a
// chunk of the size of c.
struct Place {
  Space space = Space::kInput;
  int chunk = 0;
};

// A message between stated places: for all_to_all, where a chunk has one number at its source
// (input[target]), another at its target (output[source]), and rests in scratch on its way.
struct Relay {
  struct Item {
    Place source;
    Place target;
  };
  std::vector<Item> items;
  int from = 0;
  int to = 0;
};

class Builder {
 public:
  // keep: store only this rank's program (what a running rank needs); nullopt stores all.
  explicit Builder(const Contract& contract, std::optional<int> keep = std::nullopt);
  // For an algorithm inside an algorithm: what is written into it goes into `whole`, whose ranks
  // and chunks are other ones. contract: the inner algorithm's.
  struct Part {
    std::vector<int> ranks;  // [contract.world]: which ranks of whole
    int chunk = 0;           // chunk c is [chunk + c * scale, + scale) of whole
    int scale = 1;
  };
  Builder(Builder& whole, const Contract& contract, Part part);
  ~Builder();
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  [[nodiscard]] const Contract& contract() const { return contract_; }
  [[nodiscard]] int world() const { return contract_.world; }
  [[nodiscard]] int root() const { return contract_.root; }
  [[nodiscard]] int chunks() const { return chunks_; }

  // `to` replaces its value of the chunks by `from`'s current value.
  void copy(const Move& move);
  // `to` combines `from`'s current value of the chunks into its own: value <- value (+) message.
  void reduce(const Move& move);
  void copy(const Scattered& move);
  void reduce(const Scattered& move);

  // All of them at once: every rank sends before it receives.
  void exchange(const std::vector<Relay>& relays);
  // A local copy between stated places.
  void settle(int rank, const Relay::Item& item);
  // Whether the rank's program is stored: others need not be described to exchange and settle.
  [[nodiscard]] bool kept(int rank) const { return !keep_ || *keep_ == rank; }

  // The two ends apart, for algorithms that receive in another order than they send: post() sends
  // `from`'s current value, one of the calls below receives it. Every message must be received
  // before finish(), per (from, to, lane) in the order of posting. The range may not wrap and must
  // lie in one space.
  struct Message {
    Move move;
  };
  [[nodiscard]] Message post(const Move& move);
  void receive(const Message& message);         // value <- message
  void receive_reduce(const Message& message);  // value <- value (+) message
  // Besides its value a rank may keep one other value per chunk, the aside: the partial result of
  // ranks that come before it in a summation order it must keep.
  void receive_aside(const Message& message);  // aside <- message
  void reduce_aside(const Message& message);   // aside <- aside (+) message
  void fold(int rank, int chunk, int chunks);  // value <- aside (+) value; the aside is used up

  // Adds the local copies that the contract's outputs still lack, derives dependences, orders each
  // program (invariant 3), numbers scratch so that consecutive chunks lie consecutively, and
  // returns the schedule. Call once.
  [[nodiscard]] Schedule finish(std::string name);

 private:
  struct Draft;                                           // a step whose slots are still symbolic
  struct Dependency;                                      // who last wrote and read each place
  class Scratch;                                          // the numbers of scratch slots
  using Waits = std::vector<std::vector<std::uint32_t>>;  // per step, the steps it waits for
  enum class Where : std::uint8_t { kNone, kInput, kOutput, kScratch, kAside };
  enum class End : std::uint8_t { kCopy, kReduce, kAsideCopy, kAsideReduce };

  [[nodiscard]] Where& where(int rank, int chunk);
  [[nodiscard]] Where home(int rank, int chunk, int chunks) const;
  void move_pieces(const Move& move, End end);
  void move_parts(const std::vector<Move>& parts, End end);
  [[nodiscard]] Move in_whole(const Move& move) const;
  void emit_placed(int rank, int peer, Verb verb, const Relay& relay);
  void gather_in_one_space(int rank, int chunk, int chunks);
  [[nodiscard]] int run_length(const Move& move, End end, int chunk, int limit);
  void emit_send(const Move& piece, bool joined);
  void emit_receive(const Move& piece, End end, bool joined);
  void emit_copy(int rank, int chunk, int chunks, Where source, Where target);
  void add_final_copies(int rank);
  static void drop_implied(Waits& waits);
  [[nodiscard]] static std::vector<std::uint32_t> issue_order(const std::vector<Draft>& drafts,
                                                              const Waits& waits);
  [[nodiscard]] Program lower(const std::vector<Draft>& drafts, Dependency& memory) const;

  Contract contract_;
  Builder* whole_ = nullptr;  // not null: all calls go there
  Part part_;
  std::optional<int> keep_;
  int chunks_ = 0;
  std::int64_t posted_ = 0;                 // messages whose receiving end is not written yet
  std::vector<Where> where_;                // [world][chunks]: where the value lives now
  std::vector<std::vector<Draft>> drafts_;  // [world]
};

}  // namespace sinew::sched
