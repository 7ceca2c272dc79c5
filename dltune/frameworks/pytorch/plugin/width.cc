#include "width.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace dltune {
namespace {

using Set = void (*)(int);
using Get = int (*)();
using SetLocal = int (*)(int);
// What a compiler makes of `#pragma omp parallel`: LLVM's and Intel's runtimes have it, too.
using Parallel = void (*)(void (*run)(void*), void* given, unsigned threads, unsigned flags);

Set g_set = nullptr;
Get g_get = nullptr;
Parallel g_parallel = nullptr;
bool g_keeps_threads = true;
SetLocal g_set_mkl = nullptr;  // gives back what was set before; 0: nothing, the process' number counts
int g_own = 0, g_own_mkl = 0;

template <typename F>
F Function(void* library, const char* name) {
  return reinterpret_cast<F>(dlsym(library, name));
}

// Whether PyTorch asks this runtime: a process may have several loaded.
bool Obeyed(Set set, Get get) {
  const int before = get();
  set(before + 5);
  const bool obeyed = at::get_num_threads() == before + 5;
  set(before);
  return obeyed;
}

}  // namespace

std::string FindRuntime() {
  at::get_num_threads();  // a thread that has not asked yet would set its number when it does
  void* const torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  for (void* library : {RTLD_DEFAULT, torch}) {
    const auto set = Function<Set>(library, "omp_set_num_threads");
    const auto get = Function<Get>(library, "omp_get_max_threads");
    if (!set || !get || !Obeyed(set, get)) continue;
    g_set = set;
    g_get = get;
    g_parallel = Function<Parallel>(library, "GOMP_parallel");
    g_set_mkl = Function<SetLocal>(torch, "MKL_Set_Num_Threads_Local");
    Dl_info where{};
    dladdr(reinterpret_cast<void*>(set), &where);
    const std::string path = where.dli_fname ? where.dli_fname : "OpenMP";
    const std::string file = path.substr(path.rfind('/') + 1);
    g_keeps_threads = file.rfind("libgomp", 0) != 0;
    return file;
  }
  return "";
}

bool KeepsThreads() { return g_keeps_threads; }

int Width() { return g_get ? g_get() : at::get_num_threads(); }

int OwnWidth() {
  g_own = Width();
  if (g_set_mkl) g_set_mkl(g_own_mkl = g_set_mkl(0));
  return g_own;
}

void SetWidth(int threads) {
  if (!g_set) return;
  g_set(threads);
  if (g_set_mkl) g_set_mkl(threads == g_own ? g_own_mkl : threads);
}

void OnEachThread(void (*run)(void*), void* given) {
  if (!g_parallel) return run(given);
  g_parallel(run, given, 0, 0);
}

void SetOwnWidth(int threads) {
  // it also takes from MKL the choice to use fewer
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

}  // namespace dltune
