// The job's MPI, found when it is first called and never linked: this library is loaded into every
// process of the job, and most of them (launchers, shells) have no MPI.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

namespace dltune {

#define DLTUNE_PMPI(X) \
  X(Allgather) X(Allgatherv) X(Allreduce) X(Alltoall) X(Alltoallv) X(Barrier) X(Bcast) \
  X(Gather) X(Gatherv) X(Reduce_scatter) X(Iallgather) X(Iallgatherv) X(Iallreduce) \
  X(Ialltoall) X(Ialltoallv) X(Ibarrier) X(Ibcast) X(Igather) X(Igatherv) X(Ireduce_scatter) \
  X(Comm_dup) X(Comm_free) X(Comm_rank) X(Comm_size) X(Test)

struct Pmpi {
#define DLTUNE_FIELD(name) decltype(&PMPI_##name) name;
  DLTUNE_PMPI(DLTUNE_FIELD)
#undef DLTUNE_FIELD
  MPI_Datatype long_long, int_, double_;
  MPI_Op band, min;
};

// What a name means to the object that called us. Python loads its modules, and with them MPI, out
// of the global scope, so that RTLD_DEFAULT alone does not find it. RTLD_NEXT would miss the copies
// of Open MPI's predefined objects that a linked program holds.
inline void* mpi_symbol(const char* name, void* caller) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return found;
  Dl_info info;
  void* found = nullptr;
  if (dladdr(caller, &info)) {
    if (void* object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      found = dlsym(object, name);
      dlclose(object);
    }
  }
  if (!found) {
    fprintf(stderr, "dltune: the job's MPI library has no symbol %s\n", name);
    abort();
  }
  return found;
}

// Open MPI's predefined objects are addresses inside its library.
#ifdef OMPI_PREDEFINED_GLOBAL
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) static_cast<type>(mpi_symbol(#global, caller))
#endif

inline const Pmpi& pmpi(void* caller) {
  static Pmpi mpi;
  static bool known = false;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  if (__atomic_load_n(&known, __ATOMIC_ACQUIRE)) return mpi;
  pthread_mutex_lock(&lock);
  if (!known) {
#define DLTUNE_FIND(name) \
  mpi.name = reinterpret_cast<decltype(mpi.name)>(mpi_symbol("PMPI_" #name, caller));
    DLTUNE_PMPI(DLTUNE_FIND)
#undef DLTUNE_FIND
    mpi.long_long = MPI_LONG_LONG_INT;
    mpi.int_ = MPI_INT;
    mpi.double_ = MPI_DOUBLE;
    mpi.band = MPI_BAND;
    mpi.min = MPI_MIN;
    __atomic_store_n(&known, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&lock);
  return mpi;
}

}  // namespace dltune
