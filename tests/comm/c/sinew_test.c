/* Laws of the C ABI, in C: every call gives the exact result, bad input is refused in one line and
 * changes nothing, and calls that do not match fail on every rank. Runs at any world; exit code 1
 * names what broke. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/sinew.h"

static int rank;
static int world;

#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      fprintf(stderr, "%s:%d: rank %d of %d: not so: %s (last error: %s)\n", __FILE__, __LINE__, \
              rank, world, #condition, sinew_last_error());                                      \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

enum { kCount = 3001 };

static int64_t sum_of_ranks(void) { return (int64_t)world * (world - 1) / 2; }

/* input[i] = i + rank, in each of `blocks` blocks of kCount elements. */
static void fill(int64_t* data, int blocks) {
  for (int64_t i = 0; i < (int64_t)blocks * kCount; ++i) data[i] = i + rank;
}

static void check_collectives(sinew_comm* comm) {
  const size_t whole = sizeof(int64_t) * kCount * (size_t)world;
  int64_t* input = malloc(whole);
  int64_t* output = malloc(whole);
  CHECK(input != NULL && output != NULL);

  fill(input, 1);
  CHECK(sinew_comm_all_reduce(comm, input, output, kCount, SINEW_I64, SINEW_SUM, NULL) == SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i) CHECK(output[i] == i * world + sum_of_ranks());
  CHECK(sinew_comm_all_reduce(comm, input, output, kCount, SINEW_I64, SINEW_MAX, "ring") ==
        SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i) CHECK(output[i] == i + world - 1);

  fill(input, world);
  CHECK(sinew_comm_reduce_scatter(comm, input, output, kCount, SINEW_I64, SINEW_SUM, NULL) ==
        SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i)
    CHECK(output[i] == (rank * (int64_t)kCount + i) * world + sum_of_ranks());

  fill(input, 1);
  CHECK(sinew_comm_all_gather(comm, input, output, kCount, SINEW_I64, NULL) == SINEW_OK);
  for (int peer = 0; peer < world; ++peer) {
    for (int64_t i = 0; i < kCount; ++i) CHECK(output[peer * (int64_t)kCount + i] == i + peer);
  }

  const int root = world - 1;
  CHECK(sinew_comm_broadcast(comm, input, output, kCount, SINEW_I64, root, NULL) == SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i) CHECK(output[i] == i + root);

  memset(output, 0, sizeof(int64_t) * kCount);
  CHECK(sinew_comm_reduce(comm, input, output, kCount, SINEW_I64, SINEW_MIN, root, NULL) ==
        SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i) CHECK(output[i] == (rank == root ? i : 0));

  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
  CHECK(sinew_comm_all_reduce(comm, NULL, NULL, 0, SINEW_F32, SINEW_SUM, NULL) == SINEW_OK);

  float average = (float)rank;
  CHECK(sinew_comm_all_reduce(comm, &average, &average, 1, SINEW_F32, SINEW_AVG, NULL) == SINEW_OK);
  CHECK(average == (float)sum_of_ranks() / (float)world);
  free(input);
  free(output);
}

/* Rank r's part has kCount + r elements. */
static void check_parts(sinew_comm* comm) {
  const int root = world - 1;
  int64_t total = 0;
  int64_t* counts = malloc(sizeof(int64_t) * (size_t)world);
  int64_t* equal = malloc(sizeof(int64_t) * (size_t)world);
  CHECK(counts != NULL && equal != NULL);
  for (int peer = 0; peer < world; ++peer) {
    counts[peer] = kCount + peer;
    equal[peer] = kCount;
    total += counts[peer];
  }
  int64_t* input = malloc(sizeof(int64_t) * (size_t)total);
  int64_t* output = malloc(sizeof(int64_t) * (size_t)total);
  CHECK(input != NULL && output != NULL);
  for (int64_t i = 0; i < total; ++i) input[i] = i + rank;

  CHECK(sinew_comm_gather(comm, input, output, kCount, SINEW_I64, root, NULL) == SINEW_OK);
  for (int64_t i = 0; rank == root && i < (int64_t)kCount * world; ++i)
    CHECK(output[i] == i % kCount + i / kCount);
  CHECK(sinew_comm_scatter(comm, input, output, kCount, SINEW_I64, root, NULL) == SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i) CHECK(output[i] == (int64_t)rank * kCount + i + root);
  sinew_request* request = NULL;
  CHECK(sinew_comm_start_all_to_all(comm, input, output, kCount, SINEW_I64, NULL, &request) ==
        SINEW_OK);
  CHECK(sinew_request_wait(request) == SINEW_OK);
  for (int64_t i = 0; i < (int64_t)kCount * world; ++i)
    CHECK(output[i] == (int64_t)rank * kCount + i % kCount + i / kCount);

  CHECK(sinew_comm_all_gather_v(comm, input, output, counts, SINEW_I64, NULL) == SINEW_OK);
  CHECK(output[total - 1] == counts[root] - 1 + root);
  CHECK(sinew_comm_reduce_scatter_v(comm, input, output, counts, SINEW_I64, SINEW_SUM, NULL) ==
        SINEW_OK);
  const int64_t before = (int64_t)rank * kCount + rank * (int64_t)(rank - 1) / 2;
  for (int64_t i = 0; i < counts[rank]; ++i)
    CHECK(output[i] == (before + i) * world + sum_of_ranks());
  CHECK(sinew_comm_gather_v(comm, input, output, counts, SINEW_I64, root, NULL) == SINEW_OK);
  if (rank == root) CHECK(output[total - 1] == counts[root] - 1 + root);
  CHECK(sinew_comm_scatter_v(comm, input, output, counts, SINEW_I64, root, NULL) == SINEW_OK);
  for (int64_t i = 0; i < counts[rank]; ++i) CHECK(output[i] == before + i + root);
  CHECK(sinew_comm_all_to_all_v(comm, input, equal, output, equal, SINEW_I64, NULL) == SINEW_OK);
  for (int64_t i = 0; i < (int64_t)kCount * world; ++i)
    CHECK(output[i] == (int64_t)rank * kCount + i % kCount + i / kCount);
  CHECK(sinew_comm_all_gather_v(comm, input, output, NULL, SINEW_I64, NULL) == SINEW_USAGE);
  free(input);
  free(output);
  free(counts);
  free(equal);
}

static void check_requests(sinew_comm* comm) {
  static int64_t values[4][kCount];
  sinew_request* requests[4];
  for (int call = 0; call < 4; ++call) {
    fill(values[call], 1);
    CHECK(sinew_comm_start_all_reduce(comm, values[call], values[call], kCount, SINEW_I64,
                                      SINEW_SUM, NULL, &requests[call]) == SINEW_OK);
  }
  for (int call = 3; call >= 0; --call) {
    if (call % 2 == 0) {
      CHECK(sinew_request_wait(requests[call]) == SINEW_OK);
    } else {
      int done = 0;
      while (!done) CHECK(sinew_request_test(requests[call], &done) == SINEW_OK);
    }
    for (int64_t i = 0; i < kCount; ++i) CHECK(values[call][i] == i * world + sum_of_ranks());
  }
  const int next = (rank + 1) % world;
  const int previous = (rank + world - 1) % world;
  fill(values[0], 1);
  sinew_request* sent = NULL;
  CHECK(sinew_comm_start_send(comm, values[0], kCount, SINEW_I64, next, 3, &sent) == SINEW_OK);
  CHECK(sinew_comm_recv(comm, values[1], kCount, SINEW_I64, previous, 3) == SINEW_OK);
  CHECK(sinew_request_wait(sent) == SINEW_OK);
  for (int64_t i = 0; i < kCount; ++i) CHECK(values[1][i] == i + previous);
}

static void check_split_and_memory(sinew_comm* comm) {
  sinew_comm* half = NULL;
  const int color = rank == 0 && world > 1 ? -1 : rank % 2;
  CHECK(sinew_comm_split(comm, color, -rank, &half) == SINEW_OK);
  CHECK((half == NULL) == (color < 0));
  if (half != NULL) {
    int64_t members = 1;
    CHECK(sinew_comm_all_reduce(half, &members, &members, 1, SINEW_I64, SINEW_SUM, NULL) ==
          SINEW_OK);
    CHECK(members == sinew_comm_world(half));
  }
  sinew_comm_destroy(half);

  sinew_comm* copy = NULL;
  CHECK(sinew_comm_duplicate(comm, &copy) == SINEW_OK);
  CHECK(sinew_comm_rank(copy) == rank && sinew_comm_world(copy) == world);
  int64_t one = 1;
  sinew_request* mine = NULL;
  int64_t whole = 1;
  CHECK(sinew_comm_start_all_reduce(comm, &whole, &whole, 1, SINEW_I64, SINEW_SUM, NULL, &mine) ==
        SINEW_OK);
  CHECK(sinew_comm_all_reduce(copy, &one, &one, 1, SINEW_I64, SINEW_SUM, NULL) == SINEW_OK);
  CHECK(sinew_request_wait(mine) == SINEW_OK);
  CHECK(one == world && whole == world);
  sinew_comm_destroy(copy);

  void* memory = NULL;
  CHECK(sinew_comm_allocate(comm, sizeof(int64_t) * 100000, &memory) == SINEW_OK);
  int64_t* values = memory;
  for (int64_t i = 0; i < 100000; ++i) values[i] = i;
  CHECK(sinew_comm_all_reduce(comm, values, values, 100000, SINEW_I64, SINEW_SUM, NULL) ==
        SINEW_OK);
  for (int64_t i = 0; i < 100000; ++i) CHECK(values[i] == i * world);
  CHECK(sinew_comm_free(comm, memory) == SINEW_OK);
  CHECK(sinew_comm_free(comm, memory) == SINEW_USAGE);

  CHECK(sinew_comm_allocate(comm, SIZE_MAX, &memory) == SINEW_USAGE);
  CHECK(sinew_comm_allocate(comm, SIZE_MAX / 4, &memory) == SINEW_FAILURE);
  CHECK(strstr(sinew_last_error(), "cannot reserve") != NULL);
  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
}

/* Rank r's input counts r + 1 times. */
static void check_premultiplied(sinew_comm* comm) {
  const double factor = rank + 1;
  const float other_type = 2;
  sinew_reduce_op op = SINEW_SUM;
  CHECK(sinew_comm_create_premul_sum(comm, &factor, SINEW_F64, &op) == SINEW_OK);
  double value = 2;
  CHECK(sinew_comm_all_reduce(comm, &value, &value, 1, SINEW_F64, op, NULL) == SINEW_OK);
  CHECK(value == world * (world + 1.0));
  float single = 1;
  CHECK(sinew_comm_all_reduce(comm, &single, &single, 1, SINEW_F32, op, NULL) == SINEW_USAGE);
  CHECK(strstr(sinew_last_error(), "f64") != NULL && strstr(sinew_last_error(), "f32") != NULL);
  CHECK(sinew_comm_destroy_op(comm, op) == SINEW_OK);
  CHECK(sinew_comm_destroy_op(comm, op) == SINEW_USAGE);
  CHECK(sinew_comm_all_reduce(comm, &value, &value, 1, SINEW_F64, op, NULL) == SINEW_USAGE);
  CHECK(sinew_comm_create_premul_sum(comm, &other_type, SINEW_F32, &op) == SINEW_OK);
  CHECK(sinew_comm_all_reduce(comm, &single, &single, 1, SINEW_F32, op, NULL) == SINEW_OK);
  CHECK(single == 2 * (float)world);
  CHECK(sinew_comm_create_premul_sum(comm, NULL, SINEW_F32, &op) == SINEW_USAGE);
}

/* Everyone to everyone, itself too, and sums between; nested; and one that is refused. */
static void check_groups(sinew_comm* comm) {
  int64_t* out = malloc(sizeof(int64_t) * (size_t)world);
  int64_t* in = malloc(sizeof(int64_t) * (size_t)world);
  CHECK(out != NULL && in != NULL);
  int64_t sums[5];
  for (int call = 0; call < 5; ++call) sums[call] = call + rank;
  CHECK(sinew_group_start() == SINEW_OK);
  for (int call = 0; call < 5; ++call) {
    if (call == rank % 5) {
      CHECK(sinew_group_start() == SINEW_OK);
      for (int peer = 0; peer < world; ++peer) {
        out[peer] = 100 * rank + peer;
        CHECK(sinew_comm_send(comm, &out[peer], 1, SINEW_I64, peer, 0) == SINEW_OK);
        CHECK(sinew_comm_recv(comm, &in[peer], 1, SINEW_I64, peer, 0) == SINEW_OK);
      }
      CHECK(sinew_group_end() == SINEW_OK);
    }
    CHECK(sinew_comm_all_reduce(comm, &sums[call], &sums[call], 1, SINEW_I64, SINEW_SUM, NULL) ==
          SINEW_OK);
  }
  CHECK(sinew_group_end() == SINEW_OK);
  for (int peer = 0; peer < world; ++peer) CHECK(in[peer] == 100 * peer + rank);
  for (int call = 0; call < 5; ++call) CHECK(sums[call] == sum_of_ranks() + call * world);

  CHECK(sinew_group_start() == SINEW_OK);
  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
  CHECK(sinew_comm_send(comm, out, 1, SINEW_I64, world, 0) == SINEW_USAGE);
  sinew_request* request = NULL;
  CHECK(sinew_comm_start_barrier(comm, NULL, &request) == SINEW_USAGE);
  CHECK(sinew_group_end() == SINEW_USAGE);
  CHECK(strstr(sinew_last_error(), "none of it was made") != NULL);
  CHECK(sinew_group_end() == SINEW_USAGE);
  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
  free(out);
  free(in);
}

/* Every refusal is one line that names what is legal. */
static void check_refused(sinew_status status, const char* word) {
  CHECK(status == SINEW_USAGE);
  CHECK(strstr(sinew_last_error(), word) != NULL);
  CHECK(strchr(sinew_last_error(), '\n') == NULL);
}

static void check_bad_input(sinew_comm* comm) {
  int64_t x[2] = {0, 0};
  sinew_comm* none = NULL;
  sinew_request* request = NULL;
  check_refused(sinew_comm_all_reduce(NULL, x, x, 1, SINEW_I64, SINEW_SUM, NULL), "NULL");
  check_refused(sinew_comm_all_reduce(comm, x, x, -1, SINEW_I64, SINEW_SUM, NULL), "count -1");
  check_refused(sinew_comm_all_reduce(comm, NULL, x, 1, SINEW_I64, SINEW_SUM, NULL), "null");
  check_refused(sinew_comm_all_reduce(comm, x, x, 1, (sinew_dtype)99, SINEW_SUM, NULL), "dtype 99");
  check_refused(sinew_comm_all_reduce(comm, x, x, 1, SINEW_I64, (sinew_reduce_op)77, NULL),
                "reduction 77");
  check_refused(sinew_comm_all_reduce(comm, x, x, 1, SINEW_I64, SINEW_SUM, "fastest"), "fastest");
  check_refused(sinew_comm_broadcast(comm, x, x, 1, SINEW_I64, world, NULL), "root");
  check_refused(sinew_comm_send(comm, x, 1, SINEW_I64, world, 0), "peer");
  check_refused(sinew_comm_send(comm, x, 1, SINEW_I64, 0, 16), "tag 16");
  check_refused(sinew_comm_start_barrier(comm, NULL, NULL), "NULL");
  check_refused(sinew_comm_start_barrier(comm, "fastest", &request), "fastest");
  CHECK(request == NULL);
  check_refused(sinew_request_wait(NULL), "NULL");
  check_refused(sinew_comm_create(&(sinew_comm_options){.transport = "pigeon"}, &none), "pigeon");
  CHECK(none == NULL);
  check_refused(sinew_comm_create(NULL, NULL), "NULL");
  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
}

static void check_mismatch(sinew_comm* comm) {
  if (world == 1) return;
  double x[8] = {0};
  const int64_t count = rank == 0 ? 8 : 7;
  CHECK(sinew_comm_all_reduce(comm, x, x, count, SINEW_F64, SINEW_SUM, NULL) == SINEW_FAILURE);
  CHECK(strstr(sinew_last_error(), "of 8 f64") != NULL);
  CHECK(strstr(sinew_last_error(), "of 7 f64") != NULL);
  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_FAILURE);
}

/* A call that is done and a message under way whose communicator is destroyed before anybody waits
 * for them. */
static void check_orphans(const sinew_comm_options* options) {
  sinew_comm* comm = NULL;
  CHECK(sinew_comm_create(options, &comm) == SINEW_OK);
  int64_t x[2] = {0, 0};
  sinew_request* received = NULL;
  sinew_request* summed = NULL;
  CHECK(sinew_comm_start_recv(comm, &x[0], 1, SINEW_I64, rank, 0, &received) == SINEW_OK);
  CHECK(sinew_comm_start_all_reduce(comm, &x[1], &x[1], 1, SINEW_I64, SINEW_SUM, NULL, &summed) ==
        SINEW_OK);
  CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
  sinew_comm_destroy(comm);
  int done = 1;
  check_refused(sinew_request_test(received, &done), "outlived its communicator");
  CHECK(done == 0);
  check_refused(sinew_request_wait(summed), "outlived its communicator");
}

/* A set-up that ends at its deadline leaves MPI in the middle of a call: the next says so, and does
 * not end the program by what it finds there. Rank 1 comes when rank 0 has given up, which then
 * comes no further. */
static int give_up(void) {
  const sinew_comm_options hasty = {.timeout_s = 1e-3};
  const sinew_comm_options patient = {.timeout_s = 30};
  sinew_comm* comm = NULL;
  sinew_comm* late = NULL;
  CHECK(sinew_comm_create(&patient, &comm) == SINEW_OK);
  rank = sinew_comm_rank(comm);
  for (int turn = 0; turn < 2; ++turn) {
    if (rank == turn) {
      CHECK(sinew_comm_create(&hasty, &late) == SINEW_FAILURE);
      CHECK(strstr(sinew_last_error(), "within the deadline") != NULL);
    }
    CHECK(sinew_comm_barrier(comm, NULL) == SINEW_OK);
  }
  CHECK(sinew_comm_create(&patient, &late) == SINEW_FAILURE);
  fprintf(stderr, "%s\n", sinew_last_error());
  sinew_comm_destroy(comm);
  return 0;
}

int main(int arguments, char** argument) {
  if (arguments > 1 && strcmp(argument[1], "--give-up") == 0) return give_up();
  sinew_comm* comm = NULL;
  const sinew_comm_options options = {.timeout_s = 30};
  CHECK(sinew_comm_create(&options, &comm) == SINEW_OK);
  rank = sinew_comm_rank(comm);
  world = sinew_comm_world(comm);
  check_collectives(comm);
  check_parts(comm);
  check_requests(comm);
  check_split_and_memory(comm);
  check_premultiplied(comm);
  check_groups(comm);
  check_bad_input(comm);
  check_mismatch(comm);
  sinew_comm_destroy(comm);
  sinew_comm_destroy(NULL);
  check_orphans(&options);
  return 0;
}
