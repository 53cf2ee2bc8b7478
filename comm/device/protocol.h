// Protocol: how a message's bytes and the news of their arrival travel together. The three of
// NCCL's literature (Hu et al., "Demystifying NCCL", 2025).
//
// Data moves in units of 16 bytes; the last one of a piece may be partly used.
#pragma once

#include <cstdint>
#include <string_view>

namespace sinew::comm {

enum class Protocol : std::uint8_t {
  // Plain stores, then the link's count of arrived messages with release. All of the slot is data;
  // the receiver waits for the whole message and for a fence.
  kSimple,
  // "LL": words of 8 bytes, half data and half the message's number: each word says for itself that
  // it has arrived. No fence, half the bandwidth. Needs that aligned 8-byte stores arrive whole.
  kLowLatency,
  // "LL128": lines of 128 bytes that end in the message's number; 112 bytes of each are data.
  // Needs that a warp's aligned 128-byte stores arrive whole (gpu/line.h).
  kLines,
};

inline constexpr Protocol kProtocols[] = {Protocol::kSimple, Protocol::kLowLatency,
                                          Protocol::kLines};

constexpr std::string_view name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kSimple:
      return "simple";
    case Protocol::kLowLatency:
      return "ll";
    case Protocol::kLines:
      return "ll128";
  }
  return "";
}

constexpr int kUnitBytes = 16;
constexpr int kUnitsPerLine = 7;

// Bytes of a slot that a piece of `units` units takes.
constexpr std::int64_t wire_bytes(Protocol protocol, std::int64_t units) {
  switch (protocol) {
    case Protocol::kSimple:
      return units * kUnitBytes;
    case Protocol::kLowLatency:
      return units * 2 * kUnitBytes;
    case Protocol::kLines:
      return (units + kUnitsPerLine - 1) / kUnitsPerLine * 128;
  }
  return 0;
}

// The most units of a piece when `pieces` of them share a slot.
constexpr std::int64_t units_in(Protocol protocol, std::int64_t slot_bytes, std::int64_t pieces) {
  switch (protocol) {
    case Protocol::kSimple:
      return slot_bytes / kUnitBytes / pieces;
    case Protocol::kLowLatency:
      return slot_bytes / (2 * kUnitBytes) / pieces;
    case Protocol::kLines:
      return slot_bytes / 128 / pieces * kUnitsPerLine;
  }
  return 0;
}

}  // namespace sinew::comm
