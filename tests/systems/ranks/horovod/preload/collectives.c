// Every collective that the library changes, on random data, against MPI's own blocking form.
// Started as Horovod's background thread is: not the main thread. Arguments: seed, rounds, and
// "main" to initialise MPI in the main thread instead.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 5000, RANKS = 16 };

static unsigned seed;
static int rounds, rank, size;
static MPI_Comm comm;

// the same on all ranks
static int common(int most) { return rand_r(&seed) % (most + 1); }

static void check(const char* what, const void* a, const void* b, size_t bytes) {
  if (memcmp(a, b, bytes)) {
    fprintf(stderr, "rank %d: %s differs\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
}

static void late(unsigned* mine) {
  struct timespec t = {0, rand_r(mine) % 3000000L};
  if (rand_r(mine) % 3 == 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static void absolute_most(void* in, void* inout, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; ++i) {
    const int a = abs(((int*)in)[i]), b = abs(((int*)inout)[i]);
    ((int*)inout)[i] = a > b ? a : b;
  }
}

#define BOTH(what, bytes, call)                \
  do {                                         \
    memcpy(ours, before, sizeof before);       \
    memcpy(theirs, before, sizeof before);     \
    late(&mine);                               \
    int* out = ours;                           \
    (void)out;                                 \
    if (MPI_##call) MPI_Abort(comm, 4);        \
    out = theirs;                              \
    if (PMPI_##call) MPI_Abort(comm, 5);       \
    check(what, ours, theirs, bytes);          \
  } while (0)

static int in[MOST * RANKS], before[MOST * RANKS], ours[MOST * RANKS], theirs[MOST * RANKS];

static void* background(void* initialise) {
  int level;
  if (initialise) MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  long long bits = -1 ^ (1 << rank), all = bits;
  MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_LONG_LONG_INT, MPI_BAND, comm);
  PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_LONG_LONG_INT, MPI_BAND, comm);
  check("bits", &bits, &all, sizeof bits);
  MPI_Op op;
  MPI_Op_create(absolute_most, 1, &op);
  unsigned mine = seed + rank;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < MOST * RANKS; ++i) in[i] = rand_r(&mine), before[i] = rand_r(&mine);
    const int n = common(MOST), root = common(size - 1);
    int counts[RANKS], places[RANKS], sends[RANKS], send_places[RANKS], total = 0;
    for (int i = 0; i < size; ++i) {
      counts[i] = common(MOST);
      places[i] = total;
      total += counts[i];
    }
    BOTH("allreduce", n * sizeof(int), Allreduce(in, out, n, MPI_INT, MPI_SUM, comm));
    BOTH("allreduce in place", n * sizeof(int),
         Allreduce(MPI_IN_PLACE, out, n, MPI_INT, MPI_MIN, comm));
    BOTH("allreduce with an op of its own", n * sizeof(int),
         Allreduce(in, out, n, MPI_INT, op, comm));
    BOTH("bcast", n * sizeof(int), Bcast(out, n, MPI_INT, root, comm));
    BOTH("barrier", 0, Barrier(comm));
    BOTH("gather", sizeof ours, Gather(in, n, MPI_INT, out, n, MPI_INT, root, comm));
    // as Horovod's coordinator calls them
    BOTH("gather in place", sizeof ours,
         Gather(rank == root ? MPI_IN_PLACE : in, 1, MPI_INT, rank == root ? out : NULL, 1, MPI_INT,
                root, comm));
    BOTH("gatherv", sizeof ours,
         Gatherv(in, counts[rank], MPI_INT, rank == root ? out : NULL,
                 rank == root ? counts : NULL, rank == root ? places : NULL, MPI_INT, root, comm));
    BOTH("allgather", sizeof ours, Allgather(in, n, MPI_INT, out, n, MPI_INT, comm));
    BOTH("allgather in place", sizeof ours,
         Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, n, MPI_INT, comm));
    BOTH("allgatherv", sizeof ours,
         Allgatherv(in, counts[rank], MPI_INT, out, counts, places, MPI_INT, comm));
    BOTH("allgatherv in place", sizeof ours,
         Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, counts, places, MPI_INT, comm));
    BOTH("alltoall", sizeof ours, Alltoall(in, n, MPI_INT, out, n, MPI_INT, comm));
    // rank i sends (i + j + n) % 1000 to rank j
    for (int j = 0, a = 0, b = 0; j < size; ++j) {
      sends[j] = counts[j] = (rank + j + n) % 1000;
      send_places[j] = a;
      places[j] = b;
      a += sends[j];
      b += counts[j];
    }
    BOTH("alltoallv", sizeof ours,
         Alltoallv(in, sends, send_places, MPI_INT, out, counts, places, MPI_INT, comm));
    for (int i = 0; i < size; ++i) counts[i] = (i + n) % 1000;
    BOTH("reduce_scatter", sizeof ours,
         Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm));
  }
  MPI_Op_free(&op);
  // an error comes back as MPI's own does
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int error = MPI_Bcast(in, 1, MPI_INT, size, comm);
  int a, b;
  MPI_Error_class(error, &a);
  MPI_Error_class(PMPI_Bcast(in, 1, MPI_INT, size, comm), &b);
  if (error == MPI_SUCCESS || a != b) MPI_Abort(MPI_COMM_WORLD, 6);
  MPI_Comm_free(&comm);
  if (initialise) MPI_Finalize();
  return NULL;
}

int main(int argc, char** argv) {
  seed = atoi(argv[1]);
  rounds = atoi(argv[2]);
  const int here = argc > 3;
  int level;
  if (here) MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  pthread_t thread;
  pthread_create(&thread, NULL, background, here ? NULL : &rounds);
  pthread_join(thread, NULL);
  if (here) {
    // the main thread's collectives stay MPI's own
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Finalize();
  }
  puts("same");
  return 0;
}
