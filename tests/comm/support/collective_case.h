// One collective call on exactly known data, and the laws it must obey on every transport,
// algorithm, type, reduction, count, root and placement. Shared by the tests on threads and those
// under mpirun.
//
// Values are small whole numbers, chosen so that every partial result is exact in every type: any
// order of operations must give the expected bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "sched/base/philox.h"

namespace sinew::comm::testing {

enum class Place : std::uint8_t { kApart, kInPlace };
enum class Form : std::uint8_t { kBlocking, kStarted };

struct CollectiveCase {
  sched::Collective op = sched::Collective::kAllReduce;
  std::string algorithm;
  DType dtype = DType::kF32;
  ReduceOp reduce = ReduceOp::kSum;
  std::int64_t count = 0;
  int root = 0;
  Place place = Place::kApart;
  Form form = Form::kBlocking;
  int shift = 0;  // elements by which buffers are off their allocation's alignment
};

[[nodiscard]] std::string describe(const CollectiveCase& test);

// Runs it and checks this rank's output, its input, and the bytes around both. Empty when all is as
// it must be.
[[nodiscard]] std::string run_case(Communicator& communicator, const CollectiveCase& test);

// A case drawn from the registry: number `index` of the sequence that `seed` names. Equal on all
// ranks.
[[nodiscard]] CollectiveCase draw_case(std::uint64_t seed, std::uint64_t index, int world);

// Every algorithm of the registry, both roots at the ends, in place and not, started and blocking,
// on counts around every border; all types and reductions where the count is small. Empty when all
// are exact, else the first that is not. Takes minutes: for `make test-full`.
[[nodiscard]] std::string run_matrix(Communicator& communicator);
// Whether the environment asks for it; else the words of a skip.
[[nodiscard]] bool wants_matrix();
inline constexpr const char* kMatrixSkipped = "needs SINEW_TEST_FULL=1 (make test-full): minutes";

// Counts around every border: 0, 1, the world, what a slot or a flag line holds, and beyond.
[[nodiscard]] std::vector<std::int64_t> interesting_counts(int world);

[[nodiscard]] const std::vector<sched::Collective>& operations();

// Seed of this run: SINEW_SEED if set, else fixed. Printed when it is first asked for.
[[nodiscard]] std::uint64_t test_seed();

}  // namespace sinew::comm::testing
