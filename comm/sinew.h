/* The C ABI of comm: the calls of communicator.h for programs in C and other languages.
 *
 * Every function returns SINEW_OK or an error code; no C++ exception leaves it. After an error
 * sinew_last_error() says in one line what was wrong; the text is the calling thread's own and
 * stays until its next failed call. SINEW_USAGE is bad input: nothing was sent, the communicator
 * works on. SINEW_FAILURE is a peer or the machine: the communicator is poisoned and every later
 * call on it fails.
 *
 * Meaning of arguments, in-place forms, determinism and the thread rule: communicator.h.
 * algorithm: a name, "auto", or NULL for the communicator's default.
 */
#ifndef SINEW_COMM_SINEW_H
#define SINEW_COMM_SINEW_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sinew_comm sinew_comm;
typedef struct sinew_request sinew_request;

typedef enum { SINEW_OK = 0, SINEW_FAILURE = 1, SINEW_USAGE = 2 } sinew_status;

typedef enum {
  SINEW_F32 = 0,
  SINEW_F64 = 1,
  SINEW_BF16 = 2,
  SINEW_F16 = 3,
  SINEW_I32 = 4,
  SINEW_I64 = 5,
  SINEW_U8 = 6,
  SINEW_I8 = 7,
  SINEW_U32 = 8,
  SINEW_U64 = 9,
  SINEW_E4M3 = 10, /* 8-bit floats of the OCP specification */
  SINEW_E5M2 = 11
} sinew_dtype;

typedef enum {
  SINEW_SUM = 0,
  SINEW_PROD = 1,
  SINEW_MIN = 2,
  SINEW_MAX = 3,
  SINEW_AVG = 4,
  SINEW_REDUCE_OP_ROOM =
      0x7fffffff /* no reduction: others come from sinew_comm_create_premul_sum */
} sinew_reduce_op;

/* NULL members and a timeout of 0 take the defaults. */
typedef struct {
  const char* transport; /* "auto", "shm" */
  const char* algorithm; /* of calls that name none */
  double timeout_s;      /* deadline of every wait */
} sinew_comm_options;

const char* sinew_last_error(void);

/* All of MPI_COMM_WORLD. options may be NULL. */
sinew_status sinew_comm_create(const sinew_comm_options* options, sinew_comm** comm);
/* Also of one that failed. Frees what was allocated through it too; calls that were started on it
 * must have been waited for: one that is under way fails on every rank, and here waiting for it or
 * testing it is SINEW_USAGE, once. NULL is allowed. */
void sinew_comm_destroy(sinew_comm* comm);
/* Collective. color < 0: *child becomes NULL. */
sinew_status sinew_comm_split(sinew_comm* comm, int color, int key, sinew_comm** child);
/* Collective. The same ranks, with calls of their own order. */
sinew_status sinew_comm_duplicate(sinew_comm* comm, sinew_comm** copy);
int sinew_comm_rank(const sinew_comm* comm);
int sinew_comm_world(const sinew_comm* comm);

/* A reduction of this communicator and rank: the sum, of this rank's input times `factor`, one
 * element of the type, which is copied. Ranks may have different factors, and SINEW_SUM is the
 * factor 1. For all_reduce, reduce_scatter, reduce and reduce_scatter_v of that type. */
sinew_status sinew_comm_create_premul_sum(sinew_comm* comm, const void* factor, sinew_dtype dtype,
                                          sinew_reduce_op* op);
/* What is under way with it goes on. */
sinew_status sinew_comm_destroy_op(sinew_comm* comm, sinew_reduce_op op);

/* Between these two, collectives and messages of all communicators of this thread are only noted,
 * and sinew_group_end makes them all: see group.h. Pairs may be nested; the last end does the work.
 * A call that is refused makes the whole group refused, and sinew_group_end returns SINEW_USAGE. */
sinew_status sinew_group_start(void);
sinew_status sinew_group_end(void);

sinew_status sinew_comm_all_reduce(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, sinew_reduce_op op, const char* algorithm);
sinew_status sinew_comm_reduce_scatter(sinew_comm* comm, const void* input, void* output,
                                       int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                       const char* algorithm);
sinew_status sinew_comm_all_gather(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, const char* algorithm);
sinew_status sinew_comm_broadcast(sinew_comm* comm, const void* input, void* output, int64_t count,
                                  sinew_dtype dtype, int root, const char* algorithm);
sinew_status sinew_comm_reduce(sinew_comm* comm, const void* input, void* output, int64_t count,
                               sinew_dtype dtype, sinew_reduce_op op, int root,
                               const char* algorithm);
sinew_status sinew_comm_gather(sinew_comm* comm, const void* input, void* output, int64_t count,
                               sinew_dtype dtype, int root, const char* algorithm);
sinew_status sinew_comm_scatter(sinew_comm* comm, const void* input, void* output, int64_t count,
                                sinew_dtype dtype, int root, const char* algorithm);
sinew_status sinew_comm_all_to_all(sinew_comm* comm, const void* input, void* output, int64_t count,
                                   sinew_dtype dtype, const char* algorithm);
sinew_status sinew_comm_barrier(sinew_comm* comm, const char* algorithm);

/* Parts of different sizes: counts has one number of elements per rank, read during the call only.
 */
sinew_status sinew_comm_reduce_scatter_v(sinew_comm* comm, const void* input, void* output,
                                         const int64_t* counts, sinew_dtype dtype,
                                         sinew_reduce_op op, const char* algorithm);
sinew_status sinew_comm_all_gather_v(sinew_comm* comm, const void* input, void* output,
                                     const int64_t* counts, sinew_dtype dtype,
                                     const char* algorithm);
sinew_status sinew_comm_gather_v(sinew_comm* comm, const void* input, void* output,
                                 const int64_t* counts, sinew_dtype dtype, int root,
                                 const char* algorithm);
sinew_status sinew_comm_scatter_v(sinew_comm* comm, const void* input, void* output,
                                  const int64_t* counts, sinew_dtype dtype, int root,
                                  const char* algorithm);
sinew_status sinew_comm_all_to_all_v(sinew_comm* comm, const void* input,
                                     const int64_t* input_counts, void* output,
                                     const int64_t* output_counts, sinew_dtype dtype,
                                     const char* algorithm);

/* Point to point: tags are 0 to 15. */
sinew_status sinew_comm_send(sinew_comm* comm, const void* data, int64_t count, sinew_dtype dtype,
                             int peer, int tag);
sinew_status sinew_comm_recv(sinew_comm* comm, void* data, int64_t count, sinew_dtype dtype,
                             int peer, int tag);

/* Started calls. *request must be given to sinew_request_wait, which frees it whatever it returns,
 * or to sinew_request_test until that sets *done or returns an error, which frees it too (save
 * where `done` is NULL). A peer that is late is an error of waiting only: who tests decides for how
 * long. */
sinew_status sinew_comm_start_all_reduce(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                         const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_reduce_scatter(sinew_comm* comm, const void* input, void* output,
                                             int64_t count, sinew_dtype dtype, sinew_reduce_op op,
                                             const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_all_gather(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, const char* algorithm,
                                         sinew_request** request);
sinew_status sinew_comm_start_broadcast(sinew_comm* comm, const void* input, void* output,
                                        int64_t count, sinew_dtype dtype, int root,
                                        const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_reduce(sinew_comm* comm, const void* input, void* output,
                                     int64_t count, sinew_dtype dtype, sinew_reduce_op op, int root,
                                     const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_gather(sinew_comm* comm, const void* input, void* output,
                                     int64_t count, sinew_dtype dtype, int root,
                                     const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_scatter(sinew_comm* comm, const void* input, void* output,
                                      int64_t count, sinew_dtype dtype, int root,
                                      const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_all_to_all(sinew_comm* comm, const void* input, void* output,
                                         int64_t count, sinew_dtype dtype, const char* algorithm,
                                         sinew_request** request);
sinew_status sinew_comm_start_reduce_scatter_v(sinew_comm* comm, const void* input, void* output,
                                               const int64_t* counts, sinew_dtype dtype,
                                               sinew_reduce_op op, const char* algorithm,
                                               sinew_request** request);
sinew_status sinew_comm_start_all_gather_v(sinew_comm* comm, const void* input, void* output,
                                           const int64_t* counts, sinew_dtype dtype,
                                           const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_gather_v(sinew_comm* comm, const void* input, void* output,
                                       const int64_t* counts, sinew_dtype dtype, int root,
                                       const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_scatter_v(sinew_comm* comm, const void* input, void* output,
                                        const int64_t* counts, sinew_dtype dtype, int root,
                                        const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_all_to_all_v(sinew_comm* comm, const void* input,
                                           const int64_t* input_counts, void* output,
                                           const int64_t* output_counts, sinew_dtype dtype,
                                           const char* algorithm, sinew_request** request);
sinew_status sinew_comm_start_barrier(sinew_comm* comm, const char* algorithm,
                                      sinew_request** request);
sinew_status sinew_comm_start_send(sinew_comm* comm, const void* data, int64_t count,
                                   sinew_dtype dtype, int peer, int tag, sinew_request** request);
sinew_status sinew_comm_start_recv(sinew_comm* comm, void* data, int64_t count, sinew_dtype dtype,
                                   int peer, int tag, sinew_request** request);
sinew_status sinew_request_wait(sinew_request* request);
sinew_status sinew_request_test(sinew_request* request, int* done);

/* Collective: memory that every rank maps, so that peers read it directly. Freed by sinew_comm_free
 * or with comm. What a machine has no memory for is SINEW_FAILURE on every rank, and the
 * communicator works on. */
sinew_status sinew_comm_allocate(sinew_comm* comm, size_t size_bytes, void** data);
sinew_status sinew_comm_free(sinew_comm* comm, void* data);

#ifdef __cplusplus
}
#endif

#endif
