#include "team.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "../../../native/core/channel.h"
#include "../../../native/core/workers.h"

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

namespace {

using Team = std::vector<std::pair<const int, ThreadCounters>*>;

// What threads use is never destroyed: they run on while the process exits.
auto& g_counters = *new std::map<int, ThreadCounters>;  // by thread
auto& g_teams = *new std::map<int, Team>;               // by width

int ThisThread() { return static_cast<int>(syscall(SYS_gettid)); }

bool Lives(int thread) { return syscall(SYS_tgkill, getpid(), thread, 0) == 0; }

struct Threads {
  std::mutex mu;
  std::vector<int> ids;
};

// The calling one is the last; none where the runtime tells of fewer.
std::vector<int> ThreadsOfTeam(int width) {
  if (width == 1) return {ThisThread()};  // no region: the runtime's threads may sleep on
  Threads threads;
  OnEachThread(
      [](void* given) {
        auto& all = *static_cast<Threads*>(given);
        std::lock_guard<std::mutex> lock(all.mu);
        all.ids.push_back(ThisThread());
      },
      &threads);
  if (static_cast<int>(threads.ids.size()) != width) return {};
  const auto is_other = [mine = ThisThread()](int id) { return id != mine; };
  std::partition(threads.ids.begin(), threads.ids.end(), is_other);
  return std::move(threads.ids);
}

// Counters are open files, of which the job needs some itself.
bool AreTooMany(CounterGroup* group, size_t threads) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  size_t files = threads * group->events.size();
  for (const auto& [id, counters] : g_counters) files += counters.FilesBeside(group);
  if (2 * files <= limit.rlim_cur) return false;
  if (!group->refused.exchange(true))
    Complain("counting stopped: " + std::to_string(files) + " counters for " +
             std::to_string(threads) + " threads need more than half of the " +
             std::to_string(limit.rlim_cur) + " files that the job can open (ulimit -n)");
  return true;
}

Team PresentTeam(CounterGroup* group, int width) {
  Team team;
  const std::vector<int> threads = ThreadsOfTeam(width);
  if (AreTooMany(group, threads.size())) return team;
  for (const int id : threads) team.push_back(&*g_counters.try_emplace(id, id).first);
  for (auto* const thread : team) thread->second.Read(group);  // which opens them
  return team;
}

}  // namespace

void ForgetTeams() {
  g_teams.clear();
  for (auto one = g_counters.begin(); one != g_counters.end();)
    one = Lives(one->first) ? std::next(one) : g_counters.erase(one);
}

void CloseTeams() {
  g_teams.clear();
  g_counters.clear();
}

Readings ReadTeam(CounterGroup* group, int width) {
  auto known = g_teams.find(width);
  if (known == g_teams.end()) known = g_teams.emplace(width, PresentTeam(group, width)).first;
  Readings readings{NowNs(), {}};
  for (auto* const thread : known->second) readings.threads.push_back(thread->second.Read(group));
  return readings;
}

Counts CountedSince(const Readings& before, CounterGroup* group, int width) {
  Counts counts;
  const auto known = g_teams.find(width);
  const size_t size = before.threads.size();
  counts.complete = size > 0 && known != g_teams.end() && known->second.size() == size;
  if (!counts.complete) return counts;
  bool ended = false;
  for (size_t place = size; place-- > 0;) {
    auto& [id, thread] = *known->second[place];
    counts.Add(Between(*group, before.threads[place], thread.Read(group)));
    ended |= !KeepsThreads() && !Lives(id);
  }
  // an op that took fewer threads: those that were left over have ended, and the next has new ones
  if (ended) ForgetTeams();
  counts.complete &= !ended;
  return counts;
}

}  // namespace dltune
