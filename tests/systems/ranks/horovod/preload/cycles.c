// Cycles as Horovod's background thread makes them, with ranks delayed at random: a sleep only
// where the last cycle was short, then the cache synchronisation of each process set, then
// transfers. Arguments: seed, cycle time (us), most cycles (up to 1000), and "dynamic" for process sets that may
// come and go, or "off" for a library that does nothing. Some rank asks for the shutdown at some cycle.
//
// What must hold: all ranks end, after the same cycles, with the right sums; nobody sleeps less
// than the least wish where it is agreed on, nor less than its own where it is not.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LONGEST = 2000 };

static unsigned seed, mine;
static double wishes[LONGEST], least[LONGEST], slept[LONGEST];
static int cycle_time, most, dynamic, rank, size, every;
static MPI_Comm all, part;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

// what a busy machine does to a thread; not a call that the library could take for a cycle's sleep
static void delay(int in_how_many, int us) {
  if (rand_r(&mine) % in_how_many) return;
  const double end = now() + 1e-6 * (rand_r(&mine) % us);
  while (now() < end) {
  }
}

static void fail(const char* why) {
  fprintf(stderr, "rank %d: %s\n", rank, why);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static long long synchronise(MPI_Comm comm, long long bits) {
  MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_LONG_LONG_INT, MPI_BAND, comm);
  return bits;
}

static void* background(void* unused) {
  (void)unused;
  int level;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  MPI_Comm_split(all, rank < size - 1, rank, &part);
  mine = seed * 1000 + rank;
  const int quits = rand_r(&seed) % size, at = rand_r(&seed) % most;
  double last = now();
  int cycle = 0, over = 0;
  for (; !over && cycle < LONGEST; ++cycle) {
    const double start = now(), wish = last + 1e-6 * cycle_time - start;
    if (wish > 0) {
      const struct timespec t = {(time_t)wish, (long)(1e9 * (wish - (time_t)wish))};
      nanosleep(&t, NULL);
    }
    last = now();
    wishes[cycle] = wish > 0 ? wish : 0;
    slept[cycle] = last - start;
    delay(5, 3 * cycle_time);
    if (dynamic) {
      int pair[2] = {cycle, rank}, pairs[2 * 16];
      MPI_Allgather(pair, 2, MPI_INT, pairs, 2, MPI_INT, all);
      for (int i = 0; i < size; ++i)
        if (pairs[2 * i] != cycle || pairs[2 * i + 1] != i) fail("ranks are in different cycles");
    }
    const int asks = cycle >= at && rank == quits;
    over = !(synchronise(all, asks ? ~1LL : -1LL) & 1);
    delay(10, cycle_time);
    // a set of its own, without the last rank
    if (!over && rank < size - 1) synchronise(part, -1);
    if (!over && cycle % 4 == 0) {
      int sums[300];
      for (int i = 0; i < 300; ++i) sums[i] = rank + i;
      MPI_Allreduce(MPI_IN_PLACE, sums, 300, MPI_INT, MPI_SUM, all);
      for (int i = 0; i < 300; ++i)
        if (sums[i] != size * i + size * (size - 1) / 2) fail("wrong sum");
    }
  }
  // the removal of process sets sleeps as well, and not equally often on all ranks
  for (int i = rand_r(&mine) % 3; i > 0; --i) {
    const struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
  }
  int cycles[16];
  PMPI_Allgather(&cycle, 1, MPI_INT, cycles, 1, MPI_INT, all);
  for (int i = 0; i < size; ++i)
    if (cycles[i] != cycle) fail("another number of cycles");
  PMPI_Allreduce(wishes, least, cycle, MPI_DOUBLE, MPI_MIN, all);
  for (int i = 0; i < cycle; ++i)
    if (slept[i] < least[i] - 1e-6) fail("slept less than the least wish");
  for (int i = 0; i < cycle; ++i)
    // the cycle before makes an agreement due
    if (!(i && every && i % every == 0) && slept[i] < wishes[i] - 1e-6)
      fail("slept less than it wished where nothing was agreed");
  MPI_Comm_free(&part);
  delay(2, 50000);
  MPI_Comm_free(&all);
  MPI_Finalize();
  printf("cycles %d\n", cycle);
  return NULL;
}

int main(int argc, char** argv) {
  (void)argc;
  seed = atoi(argv[1]);
  cycle_time = atoi(argv[2]);
  most = atoi(argv[3]);
  dynamic = argc > 4 && !strcmp(argv[4], "dynamic");
  every = getenv("DLTUNE_GS") ? atoi(getenv("DLTUNE_GS")) : 0;
  if (argc > 4 && !dynamic) {
    void (*off)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "dltune_no_sleeps");
    off();
    every = 0;
  }
  pthread_t thread;
  pthread_create(&thread, NULL, background, NULL);
  pthread_join(thread, NULL);
  return 0;
}
