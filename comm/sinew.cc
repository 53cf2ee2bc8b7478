#include "comm/sinew.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"
#include "sched/base/error.h"

using sinew::DType;
using sinew::ReduceOp;
using sinew::comm::Ask;
using sinew::comm::Call;
using sinew::comm::Communicator;
using sinew::comm::Request;

// A pre-multiplied sum; its place in the list is its number.
struct PremulSum {
  DType dtype = DType::kU8;
  std::array<std::byte, sizeof(std::uint64_t)> factor{};
  bool lives = false;
};

struct sinew_comm {
  std::unique_ptr<Communicator> communicator;
  std::vector<sinew::comm::Symmetric> allocations;
  std::vector<PremulSum> sums;
};

struct sinew_request {
  Request request;
};

namespace {

static_assert(static_cast<int>(DType::kU8) == SINEW_U8 &&
              static_cast<int>(DType::kF16) == SINEW_F16 &&
              static_cast<int>(DType::kE5m2) == SINEW_E5M2);
static_assert(sinew::kDTypes.size() == SINEW_E5M2 + 1);
static_assert(static_cast<int>(ReduceOp::kAvg) == SINEW_AVG &&
              static_cast<int>(ReduceOp::kMin) == SINEW_MIN);

thread_local std::string last_error;

template <typename Body>
sinew_status guarded(const Body& body) {
  try {
    body();
    return SINEW_OK;
  } catch (const sinew::UsageError& error) {
    last_error = error.what();
    return SINEW_USAGE;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an unknown exception";
  }
  return SINEW_FAILURE;
}

// Enumerations from C can hold anything.
DType checked(sinew_dtype dtype) {
  const int value = static_cast<int>(dtype);
  if (value < 0 || value > SINEW_E5M2) {
    throw sinew::UsageError("dtype " + std::to_string(value) + " is unknown; legal values: 0 to " +
                            std::to_string(SINEW_E5M2));
  }
  return static_cast<DType>(value);
}

Communicator& checked(sinew_comm* comm) {
  if (comm == nullptr) throw sinew::UsageError("the communicator is NULL");
  return *comm->communicator;
}

// Beyond the enumeration: those that were made.
constexpr int kFirstSum = 1000;

PremulSum& sum_of(sinew_comm* comm, sinew_reduce_op op) {
  const int value = static_cast<int>(op);
  const auto place = static_cast<std::size_t>(value - kFirstSum);
  if (value < kFirstSum || place >= comm->sums.size() || !comm->sums[place].lives) {
    throw sinew::UsageError("reduction " + std::to_string(value) +
                            " is unknown; legal values: 0 to " + std::to_string(SINEW_AVG) +
                            ", and what sinew_comm_create_premul_sum gave");
  }
  return comm->sums[place];
}

struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  std::array<std::byte, sizeof(std::uint64_t)> factor{};
  bool has_factor = false;
};

struct Asked {
  Ask ask;
  Reduction by;
};

Reduction checked(sinew_comm* comm, sinew_reduce_op op, sinew_dtype dtype) {
  const int value = static_cast<int>(op);
  if (value >= 0 && value <= SINEW_AVG) return {static_cast<ReduceOp>(value), {}, false};
  (void)checked(comm);
  const PremulSum& sum = sum_of(comm, op);
  if (sum.dtype != checked(dtype)) {
    throw sinew::UsageError(std::string("a pre-multiplied sum of ") +
                            std::string(sinew::name_of(sum.dtype)) + " in a call of " +
                            std::string(sinew::name_of(checked(dtype))) +
                            "; legal is the type it was made for");
  }
  return {ReduceOp::kSum, sum.factor, true};
}

Communicator::Counts counts_of(sinew_comm* comm, const int64_t* counts) {
  if (counts == nullptr) throw sinew::UsageError("the counts are NULL; legal is one per rank");
  return {counts, static_cast<std::size_t>(checked(comm).world())};
}

template <typename Start>
sinew_status started(sinew_request** request, const Start& start) {
  return guarded([&] {
    if (request == nullptr) throw sinew::UsageError("the place for the request is NULL");
    *request = nullptr;
    auto owned = std::make_unique<sinew_request>();
    owned->request = start();
    *request = owned.release();
  });
}

// Where a blocking call has no request to hand out.
sinew_request* run_now = nullptr;

// A collective: blocking when `request` is that place, else started. ask() gives the ask and what
// it is reduced by, if anything.
template <typename MakeAsk>
sinew_status issue(sinew_comm* comm, sinew_request** request, const char* algorithm,
                   const MakeAsk& ask) {
  const auto with = [&](const auto& act) {
    Communicator& communicator = checked(comm);
    const Asked asked = ask();
    const Call call{.algorithm = algorithm == nullptr ? std::string_view() : algorithm,
                    .factor = asked.by.has_factor ? asked.by.factor.data() : nullptr};
    return act(communicator, asked.ask, call);
  };
  if (request == &run_now) {
    return guarded([&] {
      with([](Communicator& communicator, const Ask& what, const Call& call) {
        communicator.run(what, call);
      });
    });
  }
  return started(request, [&] {
    return with([](Communicator& communicator, const Ask& what, const Call& call) {
      return communicator.start(what, call);
    });
  });
}

// The group that is open on this thread, and how often it was opened.
thread_local std::unique_ptr<sinew::comm::Group> open_group;
thread_local int open_group_depth = 0;

}  // namespace

extern "C" {

const char* sinew_last_error(void) { return last_error.c_str(); }

sinew_status sinew_comm_create(const sinew_comm_options* options, sinew_comm** comm) {
  return guarded([&] {
    if (comm == nullptr) throw sinew::UsageError("the place for the communicator is NULL");
    *comm = nullptr;
    sinew::comm::Options chosen;
    if (options != nullptr) {
      if (options->transport != nullptr) chosen.transport = options->transport;
      if (options->algorithm != nullptr) chosen.algorithm = options->algorithm;
      if (options->timeout_s > 0) chosen.timeout_s = options->timeout_s;
    }
    auto owned = std::make_unique<sinew_comm>();
    owned->communicator = Communicator::from_mpi(chosen);
    *comm = owned.release();
  });
}

void sinew_comm_destroy(sinew_comm* comm) { delete comm; }

sinew_status sinew_comm_split(sinew_comm* comm, int color, int key, sinew_comm** child) {
  return guarded([&] {
    if (child == nullptr) throw sinew::UsageError("the place for the new communicator is NULL");
    *child = nullptr;
    auto owned = std::make_unique<sinew_comm>();
    owned->communicator = checked(comm).split(color, key);
    if (owned->communicator != nullptr) *child = owned.release();
  });
}

sinew_status sinew_comm_duplicate(sinew_comm* comm, sinew_comm** copy) {
  return guarded([&] {
    if (copy == nullptr) throw sinew::UsageError("the place for the new communicator is NULL");
    *copy = nullptr;
    auto owned = std::make_unique<sinew_comm>();
    owned->communicator = checked(comm).duplicate();
    *copy = owned.release();
  });
}

sinew_status sinew_comm_create_premul_sum(sinew_comm* comm, const void* factor, sinew_dtype dtype,
                                          sinew_reduce_op* op) {
  return guarded([&] {
    (void)checked(comm);
    if (factor == nullptr || op == nullptr)
      throw sinew::UsageError("the factor or the place for the reduction is NULL");
    auto at = std::find_if(comm->sums.begin(), comm->sums.end(),
                           [](const PremulSum& sum) { return !sum.lives; });
    PremulSum sum{.dtype = checked(dtype), .lives = true};
    std::memcpy(sum.factor.data(), factor, sinew::size_of(sum.dtype));
    if (at == comm->sums.end()) at = comm->sums.insert(at, PremulSum{});
    *at = sum;
    *op = static_cast<sinew_reduce_op>(kFirstSum + (at - comm->sums.begin()));
  });
}

sinew_status sinew_comm_destroy_op(sinew_comm* comm, sinew_reduce_op op) {
  return guarded([&] {
    (void)checked(comm);
    sum_of(comm, op).lives = false;
  });
}

sinew_status sinew_group_start(void) {
  return guarded([] {
    if (open_group_depth == 0) open_group = std::make_unique<sinew::comm::Group>();
    ++open_group_depth;
  });
}

sinew_status sinew_group_end(void) {
  return guarded([] {
    if (open_group_depth == 0)
      throw sinew::UsageError("no group is open; legal only after sinew_group_start");
    if (--open_group_depth > 0) return;
    const std::unique_ptr<sinew::comm::Group> group = std::move(open_group);
    group->run();
  });
}

int sinew_comm_rank(const sinew_comm* comm) { return comm->communicator->rank(); }
int sinew_comm_world(const sinew_comm* comm) { return comm->communicator->world(); }

sinew_status sinew_comm_start_all_reduce(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                         const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    const Reduction reduction = checked(comm, op, dtype);
    return Asked{sinew::comm::ask::all_reduce({input, output}, count, checked(dtype), reduction.op),
                 reduction};
  });
}
sinew_status sinew_comm_all_reduce(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, sinew_reduce_op op, const char* algorithm) {
  return sinew_comm_start_all_reduce(comm, input, output, count, dtype, op, algorithm, &run_now);
}

sinew_status sinew_comm_start_reduce_scatter(sinew_comm* comm, const void* input, void* output,
                                             int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                             const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    const Reduction reduction = checked(comm, op, dtype);
    return Asked{
        sinew::comm::ask::reduce_scatter({input, output}, count, checked(dtype), reduction.op),
        reduction};
  });
}
sinew_status sinew_comm_reduce_scatter(sinew_comm* comm, const void* input, void* output,
                                       int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                       const char* algorithm) {
  return sinew_comm_start_reduce_scatter(comm, input, output, count, dtype, op, algorithm,
                                         &run_now);
}

sinew_status sinew_comm_start_all_gather(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, const char* algorithm,
                                         sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{sinew::comm::ask::all_gather({input, output}, count, checked(dtype)), {}};
  });
}
sinew_status sinew_comm_all_gather(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, const char* algorithm) {
  return sinew_comm_start_all_gather(comm, input, output, count, dtype, algorithm, &run_now);
}

sinew_status sinew_comm_start_broadcast(sinew_comm* comm, const void* input, void* output,
                                        int64_t count, sinew_dtype dtype, int root,
                                        const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{sinew::comm::ask::broadcast({input, output}, count, checked(dtype), root), {}};
  });
}
sinew_status sinew_comm_broadcast(sinew_comm* comm, const void* input, void* output, int64_t count,
                                  sinew_dtype dtype, int root, const char* algorithm) {
  return sinew_comm_start_broadcast(comm, input, output, count, dtype, root, algorithm, &run_now);
}

sinew_status sinew_comm_start_reduce(sinew_comm* comm, const void* input, void* output,
                                     int64_t count, sinew_dtype dtype, sinew_reduce_op op, int root,
                                     const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    const Reduction reduction = checked(comm, op, dtype);
    return Asked{
        sinew::comm::ask::reduce({input, output}, count, checked(dtype), reduction.op, root),
        reduction};
  });
}
sinew_status sinew_comm_reduce(sinew_comm* comm, const void* input, void* output, int64_t count,
                               sinew_dtype dtype, sinew_reduce_op op, int root,
                               const char* algorithm) {
  return sinew_comm_start_reduce(comm, input, output, count, dtype, op, root, algorithm, &run_now);
}

sinew_status sinew_comm_start_gather(sinew_comm* comm, const void* input, void* output,
                                     int64_t count, sinew_dtype dtype, int root,
                                     const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{sinew::comm::ask::gather({input, output}, count, checked(dtype), root), {}};
  });
}
sinew_status sinew_comm_gather(sinew_comm* comm, const void* input, void* output, int64_t count,
                               sinew_dtype dtype, int root, const char* algorithm) {
  return sinew_comm_start_gather(comm, input, output, count, dtype, root, algorithm, &run_now);
}

sinew_status sinew_comm_start_scatter(sinew_comm* comm, const void* input, void* output,
                                      int64_t count, sinew_dtype dtype, int root,
                                      const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{sinew::comm::ask::scatter({input, output}, count, checked(dtype), root), {}};
  });
}
sinew_status sinew_comm_scatter(sinew_comm* comm, const void* input, void* output, int64_t count,
                                sinew_dtype dtype, int root, const char* algorithm) {
  return sinew_comm_start_scatter(comm, input, output, count, dtype, root, algorithm, &run_now);
}

sinew_status sinew_comm_start_all_to_all(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, const char* algorithm,
                                         sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{sinew::comm::ask::all_to_all({input, output}, count, checked(dtype)), {}};
  });
}
sinew_status sinew_comm_all_to_all(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, const char* algorithm) {
  return sinew_comm_start_all_to_all(comm, input, output, count, dtype, algorithm, &run_now);
}

sinew_status sinew_comm_start_reduce_scatter_v(sinew_comm* comm, const void* input, void* output,
                                               const int64_t* counts, sinew_dtype dtype,
                                               sinew_reduce_op op, const char* algorithm,
                                               sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    const Reduction reduction = checked(comm, op, dtype);
    return Asked{sinew::comm::ask::reduce_scatter_v({input, output}, counts_of(comm, counts),
                                                    checked(dtype), reduction.op),
                 reduction};
  });
}
sinew_status sinew_comm_reduce_scatter_v(sinew_comm* comm, const void* input, void* output,
                                         const int64_t* counts, sinew_dtype dtype,
                                         sinew_reduce_op op, const char* algorithm) {
  return sinew_comm_start_reduce_scatter_v(comm, input, output, counts, dtype, op, algorithm,
                                           &run_now);
}

sinew_status sinew_comm_start_all_gather_v(sinew_comm* comm, const void* input, void* output,
                                           const int64_t* counts, sinew_dtype dtype,
                                           const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{
        sinew::comm::ask::all_gather_v({input, output}, counts_of(comm, counts), checked(dtype)),
        {}};
  });
}
sinew_status sinew_comm_all_gather_v(sinew_comm* comm, const void* input, void* output,
                                     const int64_t* counts, sinew_dtype dtype,
                                     const char* algorithm) {
  return sinew_comm_start_all_gather_v(comm, input, output, counts, dtype, algorithm, &run_now);
}

sinew_status sinew_comm_start_gather_v(sinew_comm* comm, const void* input, void* output,
                                       const int64_t* counts, sinew_dtype dtype, int root,
                                       const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{
        sinew::comm::ask::gather_v({input, output}, counts_of(comm, counts), checked(dtype), root),
        {}};
  });
}
sinew_status sinew_comm_gather_v(sinew_comm* comm, const void* input, void* output,
                                 const int64_t* counts, sinew_dtype dtype, int root,
                                 const char* algorithm) {
  return sinew_comm_start_gather_v(comm, input, output, counts, dtype, root, algorithm, &run_now);
}

sinew_status sinew_comm_start_scatter_v(sinew_comm* comm, const void* input, void* output,
                                        const int64_t* counts, sinew_dtype dtype, int root,
                                        const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{
        sinew::comm::ask::scatter_v({input, output}, counts_of(comm, counts), checked(dtype), root),
        {}};
  });
}
sinew_status sinew_comm_scatter_v(sinew_comm* comm, const void* input, void* output,
                                  const int64_t* counts, sinew_dtype dtype, int root,
                                  const char* algorithm) {
  return sinew_comm_start_scatter_v(comm, input, output, counts, dtype, root, algorithm, &run_now);
}

sinew_status sinew_comm_start_all_to_all_v(sinew_comm* comm, const void* input,
                                           const int64_t* input_counts, void* output,
                                           const int64_t* output_counts, sinew_dtype dtype,
                                           const char* algorithm, sinew_request** request) {
  return issue(comm, request, algorithm, [&] {
    return Asked{sinew::comm::ask::all_to_all_v({input, output}, counts_of(comm, input_counts),
                                                counts_of(comm, output_counts), checked(dtype)),
                 {}};
  });
}
sinew_status sinew_comm_all_to_all_v(sinew_comm* comm, const void* input,
                                     const int64_t* input_counts, void* output,
                                     const int64_t* output_counts, sinew_dtype dtype,
                                     const char* algorithm) {
  return sinew_comm_start_all_to_all_v(comm, input, input_counts, output, output_counts, dtype,
                                       algorithm, &run_now);
}

sinew_status sinew_comm_start_barrier(sinew_comm* comm, const char* algorithm,
                                      sinew_request** request) {
  return issue(comm, request, algorithm, [&] { return Asked{{}, {}}; });
}
sinew_status sinew_comm_barrier(sinew_comm* comm, const char* algorithm) {
  return sinew_comm_start_barrier(comm, algorithm, &run_now);
}

sinew_status sinew_comm_send(sinew_comm* comm, const void* data, int64_t count, sinew_dtype dtype,
                             int peer, int tag) {
  return guarded([&] { checked(comm).send(data, count, checked(dtype), peer, tag); });
}

sinew_status sinew_comm_recv(sinew_comm* comm, void* data, int64_t count, sinew_dtype dtype,
                             int peer, int tag) {
  return guarded([&] { checked(comm).recv(data, count, checked(dtype), peer, tag); });
}

sinew_status sinew_comm_start_send(sinew_comm* comm, const void* data, int64_t count,
                                   sinew_dtype dtype, int peer, int tag, sinew_request** request) {
  return started(request,
                 [&] { return checked(comm).start_send(data, count, checked(dtype), peer, tag); });
}

sinew_status sinew_comm_start_recv(sinew_comm* comm, void* data, int64_t count, sinew_dtype dtype,
                                   int peer, int tag, sinew_request** request) {
  return started(request,
                 [&] { return checked(comm).start_recv(data, count, checked(dtype), peer, tag); });
}

sinew_status sinew_request_wait(sinew_request* request) {
  return guarded([&] {
    if (request == nullptr) throw sinew::UsageError("the request is NULL");
    const std::unique_ptr<sinew_request> owned(request);
    owned->request.wait();
  });
}

sinew_status sinew_request_test(sinew_request* request, int* done) {
  if (done != nullptr) *done = 0;
  const sinew_status status = guarded([&] {
    if (request == nullptr || done == nullptr)
      throw sinew::UsageError("the request or the place for its state is NULL");
    *done = request->request.test() ? 1 : 0;
  });
  // A failed call is over too, and so is one whose communicator is gone.
  if (status == SINEW_FAILURE || (request != nullptr && !request->request.pending()))
    delete request;
  return status;
}

sinew_status sinew_comm_allocate(sinew_comm* comm, size_t size_bytes, void** data) {
  return guarded([&] {
    if (data == nullptr) throw sinew::UsageError("the place for the pointer is NULL");
    *data = nullptr;
    sinew::comm::Symmetric memory = checked(comm).allocate(size_bytes);
    *data = memory.get();
    comm->allocations.push_back(std::move(memory));
  });
}

sinew_status sinew_comm_free(sinew_comm* comm, void* data) {
  return guarded([&] {
    (void)checked(comm);
    const auto is_it = [&](const sinew::comm::Symmetric& memory) { return memory.get() == data; };
    if (std::erase_if(comm->allocations, is_it) == 0) {
      throw sinew::UsageError(
          "the pointer was not allocated by this communicator, or was freed before");
    }
  });
}

}  // extern "C"
