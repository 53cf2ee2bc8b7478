#include "comm/sinew.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "sched/base/error.h"

using sinew::DType;
using sinew::ReduceOp;
using sinew::comm::Call;
using sinew::comm::Communicator;
using sinew::comm::Request;

struct sinew_comm {
  std::unique_ptr<Communicator> communicator;
  std::vector<sinew::comm::Symmetric> allocations;
};

struct sinew_request {
  Request request;
};

namespace {

static_assert(static_cast<int>(DType::kU8) == SINEW_U8 &&
              static_cast<int>(DType::kF16) == SINEW_F16);
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
  if (value < 0 || value > SINEW_U8) {
    throw sinew::UsageError("dtype " + std::to_string(value) + " is unknown; legal values: 0 to " +
                            std::to_string(SINEW_U8));
  }
  return static_cast<DType>(value);
}

ReduceOp checked(sinew_reduce_op op) {
  const int value = static_cast<int>(op);
  if (value < 0 || value > SINEW_AVG) {
    throw sinew::UsageError("reduction " + std::to_string(value) +
                            " is unknown; legal values: 0 to " + std::to_string(SINEW_AVG));
  }
  return static_cast<ReduceOp>(value);
}

Communicator& checked(sinew_comm* comm) {
  if (comm == nullptr) throw sinew::UsageError("the communicator is NULL");
  return *comm->communicator;
}

Communicator::Counts counts_of(sinew_comm* comm, const int64_t* counts) {
  if (counts == nullptr) throw sinew::UsageError("the counts are NULL; legal is one per rank");
  return {counts, static_cast<std::size_t>(checked(comm).world())};
}

Call by(const char* algorithm) {
  if (algorithm == nullptr) return {};
  return {.algorithm = algorithm};
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

int sinew_comm_rank(const sinew_comm* comm) { return comm->communicator->rank(); }
int sinew_comm_world(const sinew_comm* comm) { return comm->communicator->world(); }

sinew_status sinew_comm_all_reduce(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, sinew_reduce_op op, const char* algorithm) {
  return guarded([&] {
    checked(comm).all_reduce(input, output, count, checked(dtype), checked(op), by(algorithm));
  });
}

sinew_status sinew_comm_reduce_scatter(sinew_comm* comm, const void* input, void* output,
                                       int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                       const char* algorithm) {
  return guarded([&] {
    checked(comm).reduce_scatter(input, output, count, checked(dtype), checked(op), by(algorithm));
  });
}

sinew_status sinew_comm_all_gather(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, const char* algorithm) {
  return guarded(
      [&] { checked(comm).all_gather(input, output, count, checked(dtype), by(algorithm)); });
}

sinew_status sinew_comm_broadcast(sinew_comm* comm, const void* input, void* output, int64_t count,
                                  sinew_dtype dtype, int root, const char* algorithm) {
  return guarded(
      [&] { checked(comm).broadcast(input, output, count, checked(dtype), root, by(algorithm)); });
}

sinew_status sinew_comm_reduce(sinew_comm* comm, const void* input, void* output, int64_t count,
                               sinew_dtype dtype, sinew_reduce_op op, int root,
                               const char* algorithm) {
  return guarded([&] {
    checked(comm).reduce(input, output, count, checked(dtype), checked(op), root, by(algorithm));
  });
}

sinew_status sinew_comm_gather(sinew_comm* comm, const void* input, void* output, int64_t count,
                               sinew_dtype dtype, int root, const char* algorithm) {
  return guarded(
      [&] { checked(comm).gather(input, output, count, checked(dtype), root, by(algorithm)); });
}

sinew_status sinew_comm_scatter(sinew_comm* comm, const void* input, void* output, int64_t count,
                                sinew_dtype dtype, int root, const char* algorithm) {
  return guarded(
      [&] { checked(comm).scatter(input, output, count, checked(dtype), root, by(algorithm)); });
}

sinew_status sinew_comm_all_to_all(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, const char* algorithm) {
  return guarded(
      [&] { checked(comm).all_to_all(input, output, count, checked(dtype), by(algorithm)); });
}

sinew_status sinew_comm_reduce_scatter_v(sinew_comm* comm, const void* input, void* output,
                                         const int64_t* counts, sinew_dtype dtype,
                                         sinew_reduce_op op, const char* algorithm) {
  return guarded([&] {
    checked(comm).reduce_scatter_v(input, output, counts_of(comm, counts), checked(dtype),
                                   checked(op), by(algorithm));
  });
}

sinew_status sinew_comm_all_gather_v(sinew_comm* comm, const void* input, void* output,
                                     const int64_t* counts, sinew_dtype dtype,
                                     const char* algorithm) {
  return guarded([&] {
    checked(comm).all_gather_v(input, output, counts_of(comm, counts), checked(dtype),
                               by(algorithm));
  });
}

sinew_status sinew_comm_gather_v(sinew_comm* comm, const void* input, void* output,
                                 const int64_t* counts, sinew_dtype dtype, int root,
                                 const char* algorithm) {
  return guarded([&] {
    checked(comm).gather_v(input, output, counts_of(comm, counts), checked(dtype), root,
                           by(algorithm));
  });
}

sinew_status sinew_comm_scatter_v(sinew_comm* comm, const void* input, void* output,
                                  const int64_t* counts, sinew_dtype dtype, int root,
                                  const char* algorithm) {
  return guarded([&] {
    checked(comm).scatter_v(input, output, counts_of(comm, counts), checked(dtype), root,
                            by(algorithm));
  });
}

sinew_status sinew_comm_all_to_all_v(sinew_comm* comm, const void* input,
                                     const int64_t* input_counts, void* output,
                                     const int64_t* output_counts, sinew_dtype dtype,
                                     const char* algorithm) {
  return guarded([&] {
    checked(comm).all_to_all_v(input, counts_of(comm, input_counts), output,
                               counts_of(comm, output_counts), checked(dtype), by(algorithm));
  });
}

sinew_status sinew_comm_barrier(sinew_comm* comm, const char* algorithm) {
  return guarded([&] { checked(comm).barrier(by(algorithm)); });
}

sinew_status sinew_comm_send(sinew_comm* comm, const void* data, int64_t count, sinew_dtype dtype,
                             int peer, int tag) {
  return guarded([&] { checked(comm).send(data, count, checked(dtype), peer, tag); });
}

sinew_status sinew_comm_recv(sinew_comm* comm, void* data, int64_t count, sinew_dtype dtype,
                             int peer, int tag) {
  return guarded([&] { checked(comm).recv(data, count, checked(dtype), peer, tag); });
}

sinew_status sinew_comm_start_all_reduce(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                         const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_all_reduce(input, output, count, checked(dtype), checked(op),
                                          by(algorithm));
  });
}

sinew_status sinew_comm_start_reduce_scatter(sinew_comm* comm, const void* input, void* output,
                                             int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                             const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_reduce_scatter(input, output, count, checked(dtype), checked(op),
                                              by(algorithm));
  });
}

sinew_status sinew_comm_start_all_gather(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, const char* algorithm,
                                         sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_all_gather(input, output, count, checked(dtype), by(algorithm));
  });
}

sinew_status sinew_comm_start_broadcast(sinew_comm* comm, const void* input, void* output,
                                        int64_t count, sinew_dtype dtype, int root,
                                        const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_broadcast(input, output, count, checked(dtype), root, by(algorithm));
  });
}

sinew_status sinew_comm_start_reduce(sinew_comm* comm, const void* input, void* output,
                                     int64_t count, sinew_dtype dtype, sinew_reduce_op op, int root,
                                     const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_reduce(input, output, count, checked(dtype), checked(op), root,
                                      by(algorithm));
  });
}

sinew_status sinew_comm_start_gather(sinew_comm* comm, const void* input, void* output,
                                     int64_t count, sinew_dtype dtype, int root,
                                     const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_gather(input, output, count, checked(dtype), root, by(algorithm));
  });
}

sinew_status sinew_comm_start_scatter(sinew_comm* comm, const void* input, void* output,
                                      int64_t count, sinew_dtype dtype, int root,
                                      const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_scatter(input, output, count, checked(dtype), root, by(algorithm));
  });
}

sinew_status sinew_comm_start_all_to_all(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, const char* algorithm,
                                         sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_all_to_all(input, output, count, checked(dtype), by(algorithm));
  });
}

sinew_status sinew_comm_start_reduce_scatter_v(sinew_comm* comm, const void* input, void* output,
                                               const int64_t* counts, sinew_dtype dtype,
                                               sinew_reduce_op op, const char* algorithm,
                                               sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_reduce_scatter_v(input, output, counts_of(comm, counts),
                                                checked(dtype), checked(op), by(algorithm));
  });
}

sinew_status sinew_comm_start_all_gather_v(sinew_comm* comm, const void* input, void* output,
                                           const int64_t* counts, sinew_dtype dtype,
                                           const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_all_gather_v(input, output, counts_of(comm, counts), checked(dtype),
                                            by(algorithm));
  });
}

sinew_status sinew_comm_start_gather_v(sinew_comm* comm, const void* input, void* output,
                                       const int64_t* counts, sinew_dtype dtype, int root,
                                       const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_gather_v(input, output, counts_of(comm, counts), checked(dtype),
                                        root, by(algorithm));
  });
}

sinew_status sinew_comm_start_scatter_v(sinew_comm* comm, const void* input, void* output,
                                        const int64_t* counts, sinew_dtype dtype, int root,
                                        const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_scatter_v(input, output, counts_of(comm, counts), checked(dtype),
                                         root, by(algorithm));
  });
}

sinew_status sinew_comm_start_all_to_all_v(sinew_comm* comm, const void* input,
                                           const int64_t* input_counts, void* output,
                                           const int64_t* output_counts, sinew_dtype dtype,
                                           const char* algorithm, sinew_request** request) {
  return started(request, [&] {
    return checked(comm).start_all_to_all_v(input, counts_of(comm, input_counts), output,
                                            counts_of(comm, output_counts), checked(dtype),
                                            by(algorithm));
  });
}

sinew_status sinew_comm_start_barrier(sinew_comm* comm, const char* algorithm,
                                      sinew_request** request) {
  return started(request, [&] { return checked(comm).start_barrier(by(algorithm)); });
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
  // A failed call is over too.
  if (status == SINEW_FAILURE || (status == SINEW_OK && *done != 0)) delete request;
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
