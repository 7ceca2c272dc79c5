// A background thread as Horovod's, whose tensors come from the main thread: a queue under a mutex,
// a sleep only where the last cycle was short, then the cache synchronisation, then transfers. The
// main thread submits one tensor after the other and waits for each, as training does.
// Arguments: tensors (up to 50), time between them (us), and what else there is: "sets" for a second
// synchronisation in each cycle, "names" for tensors that the cache does not know, "joins" for a last
// rank that submits half of them and takes part in the others' with all bits set.
// Tells the cycles, and of how many seconds the last tensor that the cache does not know was long
// ago: those of each gap between two of more than nearly a second.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CYCLE_US = 1000, STATES = 3 };

static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long long queued, finished;
static int begun, stops, names, sets, joins, joined, rank, size;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double gap(double since) {
  const double seconds = now() - since;
  return seconds > 0.9 ? seconds : 0;
}

static void* background(void* unused) {
  (void)unused;
  int level;
  MPI_Comm all, other;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_dup(MPI_COMM_WORLD, &all);
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Comm_rank(all, &rank);
  MPI_Comm_size(all, &size);
  pthread_mutex_lock(&queue);
  begun = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&queue);
  double last = now(), named = now(), quiet = 0;
  long long pending = 0, word = 1;
  long cycles = 0;
  for (; word & 1; ++cycles) {
    const double wish = last + 1e-6 * CYCLE_US - now();
    if (wish > 0) {
      const struct timespec t = {0, (long)(1e9 * wish)};
      nanosleep(&t, NULL);
    }
    last = now();
    pthread_mutex_lock(&queue);
    const long long new = queued;
    queued = 0;
    const int stop = stops, all_bits = joined;
    pthread_mutex_unlock(&queue);
    pending |= new;
    word = all_bits ? -1 : (pending << STATES) | 7;
    if (stop) word &= ~1LL;
    if (new && names) word &= ~2LL;
    const double asked = now();
    MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_LONG_LONG_INT, MPI_BAND, all);
    if (!(word & 2)) {
      quiet += gap(named);
      named = asked;
    }
    if (sets) {
      long long none = 7;
      MPI_Allreduce(MPI_IN_PLACE, &none, 1, MPI_LONG_LONG_INT, MPI_BAND, other);
    }
    const long long common = word >> STATES;
    if (!common) continue;
    int sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, all);
    if (sum != size * (size - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 3);
    pending &= ~common;
    pthread_mutex_lock(&queue);
    finished |= common;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&queue);
  }
  quiet += gap(named);
  MPI_Comm_free(&other);
  MPI_Comm_free(&all);
  MPI_Finalize();
  printf("cycles %ld quiet %.3f\n", cycles, quiet);
  return NULL;
}

int main(int argc, char** argv) {
  const int tensors = atoi(argv[1]), between = atoi(argv[2]);
  for (int i = 3; i < argc; ++i) {
    names |= strcmp(argv[i], "names") == 0;
    sets |= strcmp(argv[i], "sets") == 0;
    joins |= strcmp(argv[i], "joins") == 0;
  }
  pthread_t thread;
  pthread_create(&thread, NULL, background, NULL);
  pthread_mutex_lock(&queue);
  while (!begun) pthread_cond_wait(&changed, &queue);
  const int last = joins && rank == size - 1 ? tensors / 2 : tensors;
  for (int i = 0; i < last; ++i) {
    pthread_mutex_unlock(&queue);
    // every other tensor comes later on every other rank
    usleep(between * (1 + (rank + i) % 2));
    pthread_mutex_lock(&queue);
    queued |= 1LL << i;
    pthread_mutex_unlock(&queue);
    pthread_mutex_lock(&queue);
    while (!(finished & 1LL << i)) pthread_cond_wait(&changed, &queue);
  }
  joined = last < tensors;
  pthread_mutex_unlock(&queue);
  pthread_mutex_lock(&queue);
  while (finished != (1LL << tensors) - 1) pthread_cond_wait(&changed, &queue);
  joined = 0;
  stops = 1;
  pthread_mutex_unlock(&queue);
  pthread_join(thread, NULL);
  return 0;
}
