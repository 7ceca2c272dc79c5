// The last rank leaves in the middle of its cycles: "exit" without a word, or after "abort".
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char* how;

static void* background(void* unused) {
  (void)unused;
  int level, rank, size;
  MPI_Comm all;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  for (int cycle = 0;; ++cycle) {
    const struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
    if (cycle == 20 && rank == size - 1) {
      if (!strcmp(how, "abort")) MPI_Abort(all, 9);
      _exit(9);
    }
    long long bits = -1;
    MPI_Allreduce(MPI_IN_PLACE, &bits, 1, MPI_LONG_LONG_INT, MPI_BAND, all);
  }
}

int main(int argc, char** argv) {
  (void)argc;
  how = argv[1];
  pthread_t thread;
  pthread_create(&thread, NULL, background, NULL);
  pthread_join(thread, NULL);
  return 0;
}
