#include "team.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "width.h"

namespace dltune {
namespace {

// What threads use is never destroyed: they run on while the process exits.
auto& g_counters = *new std::map<int, ThreadCounters>;                // by thread
auto& g_teams = *new std::map<int, std::vector<ThreadCounters*>>;  // by width

struct Threads {
  std::mutex mu;
  std::vector<int> ids;
};

// The calling thread is its last one.
std::vector<ThreadCounters*> PresentTeam() {
  Threads threads;
  OnEachThread(
      [](void* given) {
        auto& all = *static_cast<Threads*>(given);
        std::lock_guard<std::mutex> lock(all.mu);
        all.ids.push_back(static_cast<int>(syscall(SYS_gettid)));
      },
      &threads);
  const int mine = static_cast<int>(syscall(SYS_gettid));
  const auto is_other = [mine](int id) { return id != mine; };
  std::stable_partition(threads.ids.begin(), threads.ids.end(), is_other);
  std::vector<ThreadCounters*> team;
  for (const int id : threads.ids) team.push_back(&g_counters.try_emplace(id, id).first->second);
  return team;
}

}  // namespace

void ForgetTeams() {
  g_teams.clear();
  for (auto one = g_counters.begin(); one != g_counters.end();)
    one = syscall(SYS_tgkill, getpid(), one->first, 0) == 0 ? std::next(one) : g_counters.erase(one);
}

Readings ReadTeam(CounterGroup* group, int width) {
  auto known = g_teams.find(width);
  if (known == g_teams.end()) known = g_teams.emplace(width, PresentTeam()).first;
  Readings readings;
  for (ThreadCounters* thread : known->second) readings.push_back(thread->Read(group));
  return readings;
}

Counts CountedSince(const Readings& before, CounterGroup* group, int width) {
  const auto& team = g_teams[width];
  Counts counts;
  for (size_t thread = before.size(); thread-- > 0;)
    counts.Add(Between(*group, before[thread], team[thread]->Read(group)));
  return counts;
}

}  // namespace dltune
