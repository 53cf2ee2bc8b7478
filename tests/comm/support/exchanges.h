// Laws of everything besides single collectives: point to point, split, symmetric memory, several
// calls in flight. Each runs on one rank of any communicator and says what is wrong, or nothing.
#pragma once

#include <string>

#include "comm/communicator.h"

namespace sinew::comm::testing {

// Every pair exchanges messages of many sizes, with tags received in another order than sent.
[[nodiscard]] std::string check_messages(Communicator& communicator);
// Messages to the own rank, receive first and send first.
[[nodiscard]] std::string check_self_messages(Communicator& communicator);
// Rows, columns and reversed order; some ranks in no group; groups used in turn with the whole.
[[nodiscard]] std::string check_split(Communicator& communicator);
// Collectives and messages on symmetric buffers of any alignment, freed in another order than
// allocated.
[[nodiscard]] std::string check_symmetric(Communicator& communicator);
// Sums of floats, so that their order shows: on symmetric buffers, in place, and when one rank's
// are not symmetric, the bits are those of plain buffers.
[[nodiscard]] std::string check_symmetric_bits(Communicator& communicator);
// Parts of different sizes, some or all empty: every algorithm of the registry gives what the plain
// definition says, in place and not, blocking and started; and leaves the rest alone.
[[nodiscard]] std::string check_parts(Communicator& communicator);
// Groups: everyone sends to everyone, itself too, in any order and size; collectives between
// messages and of two communicators in opposite orders; nested; with a call that is refused.
[[nodiscard]] std::string check_groups(Communicator& communicator);
// Duplicates: calls and messages of two do not mix; one works on when what it was made from is
// gone, and memory that was allocated through it lives longer.
[[nodiscard]] std::string check_duplicates(Communicator& communicator);
// Counts of more bytes than 64 bits hold are refused.
[[nodiscard]] std::string check_counts(Communicator& communicator);
// More than 2^31 bytes: broadcast, all_reduce, all_gather of a whole that large, and a message. For
// `make test-full` on a machine that has the memory: a reason why not, or nothing.
[[nodiscard]] std::string check_large(Communicator& communicator);
[[nodiscard]] std::string why_not_large(int world);
// More started calls than channels, waited for in another order, with messages and blocking calls
// between.
[[nodiscard]] std::string check_several_in_flight(Communicator& communicator);

}  // namespace sinew::comm::testing
