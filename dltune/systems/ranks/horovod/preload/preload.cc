// Preloaded into a job: Horovod's background thread sleeps where MPI would spin (NBCS), and agrees
// with those of the other ranks on how long to sleep between cycles (GS).
//
// The background thread is a thread other than the main one that begins a cache synchronisation,
// MPI_Allreduce of MPI_LONG_LONG with MPI_BAND. That one call is the same on all ranks, so that they
// all change to non-blocking collectives, which do not match blocking ones, at the same moment; who
// initialised MPI, and from which thread, does not matter. What a thread does is kept by that
// thread alone; what all share is a count of tensors that arrived.
#include <new>

#include "background.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

namespace dltune {
namespace {

thread_local Background* mine __attribute__((tls_model("initial-exec"))) = nullptr;
// in MPI, or in this library: a sleep there is not a cycle's
thread_local int inside __attribute__((tls_model("initial-exec"))) = 0;
Settings settings;
pthread_key_t at_exit;

struct Inside {
  Inside() { ++inside; }
  ~Inside() { --inside; }
};

// A setting from the environment: 0 where it is unset, or no such number.
double number(const char* name, double most) {
  const char* text = getenv(name);
  if (!text || !*text) return 0;
  char* end;
  const double value = strtod(text, &end);
  if (!*end && value >= 0 && value <= most) return value;
  settings.invalid = true;
  return 0;
}

void forget(bool settle) {
  Background* ending = mine;
  mine = nullptr;
  pthread_setspecific(at_exit, nullptr);
  if (settle) ending->settle();
  ending->write();
  // MPI may still write the result of an agreement that another rank left alone
  if (ending->agreeing()) return;
  ending->~Background();
  free(ending);
}

__attribute__((constructor)) void begin() {
  settings.pause = number("DLTUNE_NBCS", 1);
  settings.every = static_cast<int>(number("DLTUNE_GS", 1e9));
  settings.rest = number("DLTUNE_REST", 1);
  settings.folder = getenv("DLTUNE_SLEEPS");
  if (settings.folder) settings.folder = strdup(settings.folder);
  // ranks on other nodes than dltune's may get its environment, but nobody tells them anything
  char here[256] = "";
  gethostname(here, sizeof here - 1);
  if (const char* node = getenv("DLTUNE_NODE")) settings.off = strcmp(node, here) != 0;
  // a thread that ends without freeing its communicators still tells what it did
  pthread_key_create(&at_exit, [](void*) {
    if (mine) forget(false);
  });
  // a forked child has no part in the parent's MPI
  pthread_atfork(nullptr, nullptr, [] {
    mine = nullptr;
    Arrivals::forget();
  });
}

int unlocked(pthread_mutex_t* mutex) {
  const int error = pthread_mutex_unlock(mutex);
  if (!mine) Arrivals::one_more();
  return error;
}

bool on_main_thread() { return syscall(SYS_gettid) == getpid(); }

// The thread's own, made when it begins its first cache synchronisation.
Background* synchronising(const Pmpi& mpi, MPI_Comm comm, void* caller) {
  if (!mine && !settings.off && !on_main_thread()) {
    if (void* place = malloc(sizeof(Background))) {
      Settings own = settings;
      // who agrees on sleeps has no use for longer ones
      if (own.every || (own.rest > 0 && !Slot(caller, unlocked).replace())) own.rest = 0;
      mine = new (place) Background(mpi, comm, own);
      pthread_setspecific(at_exit, mine);
    }
  }
  if (!mine) return nullptr;
  if (mine->synchronises(comm)) return mine;
  mine->has_sets();
  return nullptr;
}

// A collective of Horovod's background thread, by the form of it that does not block where that is
// wanted; any other is as it was.
template <auto Block, auto Start, class... Arguments>
int collective(void* caller, Arguments... arguments) {
  const Pmpi& mpi = pmpi(caller);
  if (!mine || inside) return (mpi.*Block)(arguments...);
  const Inside here;
  mine->count();
  if (!mine->nonblocking()) return (mpi.*Block)(arguments...);
  MPI_Request request;
  const int error = (mpi.*Start)(arguments..., &request);
  return error == MPI_SUCCESS ? mine->wait(&request) : error;
}

// Whether this was the sleep of a cycle, and was slept.
bool slept(const timespec& asked) {
  if (!mine || inside) return false;
  const Inside here;
  return mine->sleep(seconds(asked));
}

// The function that ours stands before.
template <auto Ours>
decltype(Ours) plain(const char* name) {
  static decltype(Ours) known;
  auto found = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (!found) {
    found = reinterpret_cast<decltype(found)>(dlsym(RTLD_NEXT, name));
    __atomic_store_n(&known, found, __ATOMIC_RELAXED);
  }
  return found;
}

}  // namespace
}  // namespace dltune

using namespace dltune;

// The bootstrap's, before hvd.init(): the job may have process sets, whose members would wait for
// ranks that rest.
EXPORT void dltune_no_rests() { settings.rest = 0; }

// The bootstrap's, too: other ranks of the job do without this library, and it agrees with none.
EXPORT void dltune_no_sleeps() { settings.off = true; }

EXPORT int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm) {
  const Pmpi& mpi = pmpi(CALLER);
  Background* cycle = nullptr;
  if (op == mpi.band && type == mpi.long_long && !inside) {
    const Inside here;
    cycle = synchronising(mpi, comm, CALLER);
    const auto* const words = static_cast<const long long*>(send == MPI_IN_PLACE ? receive : send);
    const int error = cycle ? cycle->before_synchronisation(words, count) : MPI_SUCCESS;
    if (error != MPI_SUCCESS) return error;
  }
  const int error = collective<&Pmpi::Allreduce, &Pmpi::Iallreduce>(
      CALLER, send, receive, count, type, op, comm);
  if (cycle && error == MPI_SUCCESS)
    cycle->after_synchronisation(static_cast<const long long*>(receive), count);
  return error;
}

EXPORT int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return collective<&Pmpi::Bcast, &Pmpi::Ibcast>(CALLER, buffer, count, type, root, comm);
}

EXPORT int MPI_Barrier(MPI_Comm comm) {
  return collective<&Pmpi::Barrier, &Pmpi::Ibarrier>(CALLER, comm);
}

EXPORT int MPI_Gather(const void* send, int sends, MPI_Datatype send_type, void* receive,
                      int receives, MPI_Datatype receive_type, int root, MPI_Comm comm) {
  return collective<&Pmpi::Gather, &Pmpi::Igather>(
      CALLER, send, sends, send_type, receive, receives, receive_type, root, comm);
}

EXPORT int MPI_Gatherv(const void* send, int sends, MPI_Datatype send_type, void* receive,
                       const int* receives, const int* places, MPI_Datatype receive_type, int root,
                       MPI_Comm comm) {
  return collective<&Pmpi::Gatherv, &Pmpi::Igatherv>(
      CALLER, send, sends, send_type, receive, receives, places, receive_type, root, comm);
}

EXPORT int MPI_Allgather(const void* send, int sends, MPI_Datatype send_type, void* receive,
                         int receives, MPI_Datatype receive_type, MPI_Comm comm) {
  return collective<&Pmpi::Allgather, &Pmpi::Iallgather>(
      CALLER, send, sends, send_type, receive, receives, receive_type, comm);
}

EXPORT int MPI_Allgatherv(const void* send, int sends, MPI_Datatype send_type, void* receive,
                          const int* receives, const int* places, MPI_Datatype receive_type,
                          MPI_Comm comm) {
  return collective<&Pmpi::Allgatherv, &Pmpi::Iallgatherv>(
      CALLER, send, sends, send_type, receive, receives, places, receive_type, comm);
}

EXPORT int MPI_Alltoall(const void* send, int sends, MPI_Datatype send_type, void* receive,
                        int receives, MPI_Datatype receive_type, MPI_Comm comm) {
  return collective<&Pmpi::Alltoall, &Pmpi::Ialltoall>(
      CALLER, send, sends, send_type, receive, receives, receive_type, comm);
}

EXPORT int MPI_Alltoallv(const void* send, const int* sends, const int* send_places,
                         MPI_Datatype send_type, void* receive, const int* receives,
                         const int* receive_places, MPI_Datatype receive_type, MPI_Comm comm) {
  return collective<&Pmpi::Alltoallv, &Pmpi::Ialltoallv>(
      CALLER, send, sends, send_places, send_type, receive, receives, receive_places, receive_type,
      comm);
}

EXPORT int MPI_Reduce_scatter(const void* send, void* receive, const int* counts,
                              MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return collective<&Pmpi::Reduce_scatter, &Pmpi::Ireduce_scatter>(
      CALLER, send, receive, counts, type, op, comm);
}

// Horovod frees the communicator of its cycles when it shuts down.
EXPORT int MPI_Comm_free(MPI_Comm* comm) {
  const Pmpi& mpi = pmpi(CALLER);
  if (mine && !inside && mine->synchronises(*comm)) {
    const Inside here;
    forget(true);
  }
  return mpi.Comm_free(comm);
}

EXPORT int nanosleep(const timespec* asked, timespec* left) {
  return slept(*asked) ? 0 : plain<&nanosleep>("nanosleep")(asked, left);
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const timespec* asked, timespec* left) {
  if (flags == 0 && clock != CLOCK_THREAD_CPUTIME_ID && clock != CLOCK_PROCESS_CPUTIME_ID &&
      slept(*asked))
    return 0;
  return plain<&clock_nanosleep>("clock_nanosleep")(clock, flags, asked, left);
}
