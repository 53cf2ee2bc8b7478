#include "model/parallel.h"

#include <algorithm>
#include <array>
#include <vector>

#include "comm/error.h"
#include "sched/base/check.h"

namespace sinew::model {

namespace {

// From here on two-shot moves fewer bytes than one-shot's latency is worth. Both give the same
// bits.
constexpr std::int64_t kTwoShotBytes = 4096;

// The ranks that share all coordinates but those of `axis`.
std::unique_ptr<comm::Communicator> split_along(comm::Communicator& world, const sched::Grid& grid,
                                                sched::Axis axis) {
  if (grid.size(axis) == 1) return nullptr;
  const std::vector<int> group = grid.group(world.rank(), axis);
  return world.split(group.front(), grid.coordinates_of(world.rank())[axis]);
}

}  // namespace

Parallel::Parallel(comm::Communicator& world, const sched::Grid& grid, PipelineEnds ends,
                   int copies, int shard)
    : world_(world),
      grid_(grid),
      ends_(ends),
      coordinates_(grid.coordinates_of(world.rank())),
      shard_ranks_(shard > 0 ? shard : data_world()) {
  CHECK_EQ(world.world(), grid.world());
  tensor_ = split_along(world, grid, sched::Axis::kTp);
  pipeline_ = split_along(world, grid, sched::Axis::kPp);
  context_ = split_along(world, grid, sched::Axis::kCp);
  if (data_world() > 1) {
    constexpr std::array kAxes = {sched::Axis::kCp, sched::Axis::kDp};
    const std::vector<int> group = grid.group(world.rank(), kAxes);
    data_ = world.split(*std::min_element(group.begin(), group.end()), data_rank());
  }
  CHECK_EQ(data_world() % shard_ranks_, 0);
  if (shard_ranks_ < data_world()) {
    // The world rank that is data rank `index` beside this one.
    const auto beside = [&](int index) {
      sched::PerAxis at = coordinates_;
      at.dp = index / grid.sizes().cp;
      at.cp = index % grid.sizes().cp;
      return grid.rank_of(at);
    };
    const int place = data_rank() % shard_ranks_;
    if (shard_ranks_ > 1) shard_ = world.split(beside(data_rank() - place), place);
    shard_groups_ = world.split(beside(place), data_rank() / shard_ranks_);
  }
  if (copies > 1) {
    sched::PerAxis first = coordinates_;
    first.tp -= first.tp % copies;
    copies_ = world.split(grid.rank_of(first), coordinates_.tp);
  }
  if (ends.first != ends.last) {
    const bool member = first_stage() || last_stage();
    const int color = member ? grid.group(world.rank(), sched::Axis::kPp).front() : -1;
    // The first stage comes first, wherever it lies: sums run in one order in every pipeline.
    tie_ = world.split(color, last_stage() ? 1 : 0);
  }
}

void Parallel::open_doors(const OpenDoor& open) {
  for (comm::Communicator* group : device_groups()) {
    if (group == nullptr || group == pipeline()) continue;
    group->attach(open(*group, group == context() ? Moves::kMessages : Moves::kCollectives));
  }
  if (pipeline() == nullptr) return;
  try {
    pipeline()->attach(open(*pipeline(), Moves::kMessages));
  } catch (const comm::Error& error) {
    // All ranks hear of it.
    if (error.cause() != comm::Cause::kResource) throw;
  }
}

void Parallel::check_doors() {
  for (comm::Communicator* group : device_groups()) {
    if (group != nullptr) group->check_device();
  }
}

void Parallel::close_doors() {
  for (comm::Communicator* group : device_groups()) {
    if (group != nullptr) group->detach_device();
  }
}

void reduce_over(comm::Communicator* group, void* data, std::int64_t count, DType dtype,
                 ReduceOp op) {
  if (group == nullptr) return;
  const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(dtype));
  group->all_reduce(data, data, count, dtype, op, {.algorithm = sum_algorithm(bytes)});
}

std::string_view sum_algorithm(std::int64_t array_bytes) {
  return array_bytes < kTwoShotBytes ? "one_shot" : "two_shot";
}

double sum_sent_bytes(std::int64_t array_bytes, int ranks) {
  const double others = ranks - 1;
  const auto bytes = static_cast<double>(array_bytes);
  return array_bytes < kTwoShotBytes ? others * bytes : 2 * others / ranks * bytes;
}

}  // namespace sinew::model
