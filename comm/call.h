// Call: what one rank asked for, in two words and a count, so that it fits into a message header,
// can be compared with one instruction and can be put into words for an error.
//
// Never does: block, allocate (except describe) or know about memory and transports.
// Threads: plain values.
//
// Invariant: two ranks' calls belong together exactly when their `flag` words are equal: the flag
// holds the call's number and a hash of everything else that must agree.
#pragma once

#include <cstdint>
#include <string>

#include "sched/base/dtype.h"
#include "sched/collective/contract.h"

namespace sinew::comm {

// The first kCollectiveCount values are sched::Collective's.
enum class CallKind : std::uint8_t {
  kMessage = sched::kCollectiveCount,  // point to point, either side
  kSplit,
  kAllocate,
};

constexpr CallKind kind_of(sched::Collective op) { return static_cast<CallKind>(op); }

// Whether the caller blocks or holds a request: the two forms use different lanes and never match.
enum class Form : std::uint8_t { kBlocking, kStarted };

// Of 15 bits, as an algorithm's index has in a packed call.
inline constexpr std::uint16_t kNoAlgorithm = 0x7fff;

struct CallInfo {
  CallKind kind = CallKind::kMessage;
  std::uint16_t algorithm = kNoAlgorithm;  // index into sched::every_algorithm()
  DType dtype = DType::kU8;
  ReduceOp reduce = ReduceOp::kSum;
  Form form = Form::kBlocking;
  std::uint16_t root = 0;
  // Of a message; of a schedule from a file: a hash of its text; of a table's algorithm: 0, or, for
  // parts of different sizes, a hash of the sizes.
  static constexpr std::uint16_t kOwnParts = 0xffff;  // each rank has sizes of its own
  std::uint16_t tag = 0;
  std::int64_t count = 0;

  [[nodiscard]] constexpr std::uint64_t packed() const {
    return static_cast<std::uint64_t>(kind) | (algorithm & std::uint64_t{0xff}) << 8 |
           (algorithm & std::uint64_t{0x7f00}) << 17 | static_cast<std::uint64_t>(dtype) << 16 |
           static_cast<std::uint64_t>(reduce) << 20 | static_cast<std::uint64_t>(form) << 24 |
           static_cast<std::uint64_t>(root) << 32 | static_cast<std::uint64_t>(tag) << 48;
  }
  static constexpr CallInfo unpack(std::uint64_t bits, std::int64_t count) {
    CallInfo call;
    call.kind = static_cast<CallKind>(bits & 0xff);
    call.algorithm = static_cast<std::uint16_t>((bits >> 8 & 0xff) | (bits >> 17 & 0x7f00));
    call.dtype = static_cast<DType>((bits >> 16) & 0xf);
    call.reduce = static_cast<ReduceOp>((bits >> 20) & 0xf);
    call.form = static_cast<Form>((bits >> 24) & 0x1);
    call.root = static_cast<std::uint16_t>(bits >> 32);
    call.tag = static_cast<std::uint16_t>(bits >> 48);
    call.count = count;
    return call;
  }
  friend constexpr bool operator==(const CallInfo&, const CallInfo&) = default;
};

// 32 bits that differ whenever the calls plausibly do: two multiplications and a fold.
constexpr std::uint32_t signature_of(std::uint64_t packed, std::int64_t count) {
  std::uint64_t hash = (packed + 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL;
  hash ^= (static_cast<std::uint64_t>(count) + 0x632be59bd9b4e019ULL) * 0x94d049bb133111ebULL;
  return static_cast<std::uint32_t>(hash >> 32) ^ static_cast<std::uint32_t>(hash);
}

// Of counts that all ranks pass alike: neither 0 nor kOwnParts.
[[nodiscard]] std::uint16_t tag_of_parts(const std::int64_t* counts, int world);

// The signatures of all calls so far in one word: ranks that differ in one call differ ever after,
// so that a mismatch in a call in which they exchange nothing still shows at their next message.
constexpr std::uint32_t history_with(std::uint32_t history, std::uint32_t signature) {
  return (history ^ signature) * 0x9e3779b1U + 1;
}

// The word that opens every message: call number (its low 32 bits) and history of signatures, or,
// for point to point, place in the queue and signature.
constexpr std::uint64_t flag_of(std::uint64_t number, std::uint32_t signature) {
  return number << 32 | signature;
}
constexpr std::uint32_t number_in(std::uint64_t flag) {
  return static_cast<std::uint32_t>(flag >> 32);
}

// "all_reduce/ring of 1024 f32, sum", "send or recv of 8 u8, tag 3".
[[nodiscard]] std::string describe(const CallInfo& call);

}  // namespace sinew::comm
