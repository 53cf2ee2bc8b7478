#include "tools/coll_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "comm/device/cuda_ipc.h"
#include "comm/plan.h"
#include "sched/base/error.h"
#include "sched/base/text.h"
#include "sched/collective/registry.h"
#include "sched/verify.h"
#include "tools/files.h"
#include "tools/launcher.h"
#include "tools/machine.h"
#include "tools/selection.h"
#include "tools/table.h"

namespace sinew::tools {

using bench::CollectiveCase;
using bench::CollectiveShape;

namespace {

template <typename Item, typename Parse>
std::vector<Item> parse_list(const std::string& text, Parse&& parse) {
  std::vector<Item> items;
  for (const std::string_view name : split(text, ',')) items.push_back(parse(trim(name)));
  return items;
}

CollectiveCase::Buffers parse_buffers(std::string_view name) {
  if (name == "plain") return CollectiveCase::Buffers::kPlain;
  if (name == "symmetric") return CollectiveCase::Buffers::kSymmetric;
  throw UsageError(fmt::format("--buffers '{}' is unknown: legal are plain, symmetric", name));
}

// Checked results are exact ones: a factor must not make them round.
void require_factor(const CollOptions& options, const CollRequest& request) {
  if (options.factor == 1) return;
  const std::string given = fmt::format("--factor {}", options.factor);
  int exponent = 0;
  const bool shifts = std::frexp(options.factor, &exponent) == 0.5;
  const bool whole = options.factor == std::floor(options.factor);
  if (!whole && !shifts) {
    throw UsageError(given +
                     " would round: legal are whole numbers and powers of two, from 1/64 to 4");
  }
  for (const DType dtype : request.dtypes) {
    if (whole || info(dtype).is_float) continue;
    throw UsageError(fmt::format("{} is no {}: legal are whole numbers from 1 to 4", given,
                                 sinew::name_of(dtype)));
  }
  for (const ReduceOp reduce : request.reduces) {
    if (reduce == ReduceOp::kSum) continue;
    throw UsageError(
        fmt::format("{} is of sums: legal with --reduce {} is 1", given, sinew::name_of(reduce)));
  }
  if (std::none_of(request.ops.begin(), request.ops.end(), reduces))
    throw UsageError(given + ": no operation of --op sums anything; legal is 1");
}

}  // namespace

comm::Copies copies_of(std::string_view name) {
  if (name == "slots") return comm::Copies::kSlots;
  return name == "pull" ? comm::Copies::kPull : comm::Copies::kAuto;
}

std::string_view name_of(CollectiveCase::Buffers buffers) {
  return buffers == CollectiveCase::Buffers::kPlain ? "plain" : "symmetric";
}

bool reduces(sched::Collective op) { return sched::Contract{.op = op}.reduces(); }

CollRequest parse_request(const CollOptions& options) {
  CollRequest request;
  request.ops = parse_collectives(options.ops);
  request.algorithms =
      parse_list<std::string>(options.algorithms, [](auto name) { return std::string(name); });
  request.sizes_bytes = parse_sizes(options.bytes);
  if (!options.schedule.empty()) {
    AnySchedule read = read_schedule("--schedule", options.schedule);
    if (!std::holds_alternative<sched::Schedule>(read)) {
      throw UsageError(fmt::format("--schedule '{}' is a pipeline's; legal is a collective's",
                                   options.schedule));
    }
    request.schedule = std::get<sched::Schedule>(std::move(read));
    request.ops = {request.schedule->contract.op};
  }
  request.dtypes =
      in_option("--dtype", [&] { return parse_list<DType>(options.dtypes, parse_dtype); });
  request.reduces =
      in_option("--reduce", [&] { return parse_list<ReduceOp>(options.reduces, parse_reduce_op); });
  request.buffers = parse_list<CollectiveCase::Buffers>(options.buffers, parse_buffers);
  require_factor(options, request);
  for (const bench::Parts parts : {bench::Parts::kRamp, bench::Parts::kOne})
    if (options.parts == name_of(parts)) request.parts = parts;
  return request;
}

sched::Params params_of(const CollectiveShape& shape) {
  return {.world = shape.world, .root = shape.root};
}

namespace {

// Whether the row can move the shape's parts: ranks that forward parts of an all_to_all do not know
// the sizes of uneven ones.
bool moves(const sched::Algorithm& row, const CollectiveShape& shape) {
  if (row.op != shape.op || !row.refuse(params_of(shape)).empty()) return false;
  if (shape.op != sched::Collective::kAllToAll || !shape.uneven()) return true;
  return !comm::compile(sched::generate(row, params_of(shape)), 0, {}).forwards;
}

}  // namespace

std::vector<std::string> names_for(const CollRequest& request, const CollectiveShape& shape) {
  std::vector<std::string> names;
  const auto add = [&names](std::string_view name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const std::string& name : request.algorithms) {
    if (name == "all") {
      add("auto");
      for (const sched::Algorithm& row : sched::algorithms()) {
        if (moves(row, shape)) add(row.name);
      }
    } else if (name == "auto") {
      add(name);
    } else {
      const std::string refusal = sched::find_algorithm(shape.op, name).refuse(params_of(shape));
      if (!refusal.empty()) throw UsageError(fmt::format("--algo {}: {}", name, refusal));
      add(name);
    }
  }
  return names;
}

sched::Cost prove(const sched::Schedule& schedule, const std::string& path, int world) {
  if (schedule.contract.world != world) {
    throw UsageError(fmt::format("--schedule '{}' is for {} and {} launched", path,
                                 counted(schedule.contract.world, "rank"),
                                 world == 1 ? "1 was" : fmt::format("{} were", world)));
  }
  return proved("--schedule", path, sched::verify(schedule)).facts.cost;
}

void throw_if_wrong(std::int64_t elements) {
  if (elements == 0) return;
  throw Error(
      fmt::format("{} {} wrong", counted(elements, "element"), elements == 1 ? "is" : "are"));
}

void check_memory(const CollRequest& request, const CollOptions& options, int world) {
  const std::int64_t largest =
      *std::max_element(request.sizes_bytes.begin(), request.sizes_bytes.end());
  double needed = 0;
  for (const sched::Collective op : request.ops) {
    for (const DType dtype : request.dtypes) {
      CollectiveShape shape = {.op = op,
                               .dtype = dtype,
                               .world = world,
                               .inplace = options.inplace,
                               .parts = request.parts};
      shape.count = bench::count_for_bytes(op, dtype, world, largest);
      const auto elements = static_cast<double>(shape.input_count()) +
                            static_cast<double>(shape.inplace ? 0 : shape.output_count());
      needed = std::max(needed, elements * static_cast<double>(size_of(dtype)));
    }
  }
  if (options.baseline == "mpi") needed *= 2;
  require_memory(describe_machine(), fmt::format("--bytes {}", options.bytes), needed * world);
}

void require_effect(const CollRequest& request, const Args& args) {
  const auto some = [&](const auto& has) { return std::ranges::any_of(request.ops, has); };
  if (!some([](sched::Collective op) { return sched::Contract{.op = op}.rooted(); }))
    args.refuse_given({"--root"}, "here: of broadcast, reduce, gather and scatter");
  if (!some(reduces))
    args.refuse_given({"--reduce", "--factor"}, "here: of all_reduce, reduce_scatter and reduce");
  if (!some([](sched::Collective op) { return op != sched::Collective::kBarrier; }))
    args.refuse_given({"--inplace", "--dtype", "--bytes"}, "here: a barrier moves nothing");
  if (!some(bench::has_parts)) {
    args.refuse_given({"--parts"},
                      "here: of reduce_scatter, all_gather, gather, scatter and all_to_all");
  }
  if (request.parts != bench::Parts::kEven && args.given("--inplace") &&
      some([](sched::Collective op) { return op == sched::Collective::kAllToAll; }))
    throw UsageError(fmt::format(
        "--parts {} with --inplace: all_to_all_v is not in place; legal is --parts even",
        name_of(request.parts)));
  if (std::ranges::find(request.buffers, CollectiveCase::Buffers::kPlain) == request.buffers.end())
    args.refuse_given({"--copies"}, "here: it is of ordinary buffers");
}

void require_fit(const CollOptions& options, const Args& args, bool on_device) {
  const CollOptions plain;
  const std::vector<std::string_view> names = split(options.algorithms, ',');
  const bool has_auto = std::any_of(names.begin(), names.end(), [](std::string_view name) {
    return trim(name) == "auto" || trim(name) == "all";
  });
  if (options.baseline == "mpi" && launcher_of_environment().sockets)
    throw UsageError(
        "--baseline mpi needs ranks that mpirun started: these meet over sockets; legal here is "
        "none");
  if (!on_device) {
    if (!has_auto) args.refuse_given({"--selection"}, "without auto or all in --algo");
    args.refuse_given({"--channels"}, "on host memory: it needs --device cuda");
    if (!has_auto)
      args.refuse_given({"--explain-choice"}, "without auto or all in --algo: nothing is chosen");
    if (options.transport == comm::kCudaIpcName)
      throw UsageError("--transport cuda_ipc moves device memory: it needs --device cuda");
    if (options.protocol != plain.protocol)
      throw UsageError("--protocol is for device memory: it needs --device cuda");
    return;
  }
  if (options.transport != "auto" && options.transport != comm::kCudaIpcName) {
    throw UsageError(fmt::format(
        "--transport {} does not move device memory: legal with --device cuda are auto, {}",
        options.transport, comm::kCudaIpcName));
  }
  args.refuse_given(
      {"--schedule", "--copies", "--selection", "--explain-choice", "--factor", "--parts"},
      "with --device cuda: it is for host memory");
  if (options.buffers != plain.buffers)
    throw UsageError(fmt::format("--buffers {} is for host memory: legal with --device cuda is {}",
                                 options.buffers, plain.buffers));
  if (options.baseline != plain.baseline)
    throw UsageError("--baseline mpi is for host memory: legal with --device cuda is none");
}

bench::RepeatOptions repeat_options(const CollOptions& options) {
  return {
      .budget_s = options.budget_ms * 1e-3, .calls = options.iterations, .warmup = options.warmup};
}

std::string average_line(std::vector<double>& rates_gbps) {
  if (rates_gbps.empty()) return {};
  const double sum = std::accumulate(rates_gbps.begin(), rates_gbps.end(), 0.0);
  const double mean = sum / static_cast<double>(rates_gbps.size());
  const std::string rows = counted(std::ssize(rates_gbps), "row");
  rates_gbps.clear();
  return fmt::format("average bus bandwidth of {}: {} GB/s\n", rows, three_digits(mean));
}

}  // namespace sinew::tools
