// The last rank never sleeps, all others want to sleep for so many seconds in each of five cycles.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int wish;

static void* background(void* unused) {
  (void)unused;
  int level, rank, size;
  MPI_Comm all;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  for (int cycle = 0; cycle < 6; ++cycle) {
    const struct timespec t = {wish, 0};
    if (cycle && rank < size - 1) nanosleep(&t, NULL);
    long long bits = -1;
    MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_LONG_LONG_INT, MPI_BAND, all);
  }
  MPI_Comm_free(&all);
  MPI_Finalize();
  puts("done");
  return NULL;
}

int main(int argc, char** argv) {
  (void)argc;
  wish = atoi(argv[1]);
  pthread_t thread;
  pthread_create(&thread, NULL, background, NULL);
  pthread_join(thread, NULL);
  return 0;
}
